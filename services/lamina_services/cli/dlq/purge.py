"""`lamina dlq purge`: remove dead letters for good, with a copy in a file."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from lamina.errors import LaminaError
from lamina_services.cli.app import command, complain, output
from lamina_services.cli.dlq import options, records
from lamina_services.cli.dlq.printing import print_plan
from lamina_services.cli.dlq.reading import connect, find, warn
from lamina_services.cli.options import HOME, Cloud, Home, Json
from lamina_services.cli.up import stop_on_signals


@command
async def purge(
    ids: options.Ids = None,
    *,
    subscription: options.Subscriptions = None,
    reason: options.Reason = None,
    user: options.User = None,
    app: options.App = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = None,
    to: options.To = None,
    yes: options.RemoveThem = False,
    cloud: Cloud = False,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Remove dead letters, once they are safe in a file. Shows them only, without --yes.

    Nothing is removed before the file is on the disk; an existing file is never touched. The file can be
    replayed: `lamina dlq replay --from-file`. It holds what users said: keep it as such.
    """
    selection = options.selection_of(
        ids=ids, subscriptions=subscription, reason=reason, user=user, app=app, since=since, until=until
    )
    stop_on_signals()
    async with connect(home, cloud=cloud) as dead:
        found = await find(dead, selection, home, cloud=cloud, limit=limit)
        warn(found.elsewhere)
        if not yes or not found.letters:
            print_plan(output(), found.letters, "purge", "removed", json=json)
            return
        file = to or Path(f"dead-letters-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.jsonl")
        await asyncio.to_thread(records.write, file, found.letters)
        try:
            removed = await dead.remove(found.letters)
        except LaminaError:
            complain(f"{file} holds all {len(found.letters)}; some of them may be dead letters still")
            raise
    if json:
        output().print_json(data={"purged": removed, "file": str(file)})
    else:
        output().print(f"removed {removed} dead letters; {file} holds them", soft_wrap=True, markup=False)
