"""`lamina dlq export`: dead letters in a file, whole."""

import asyncio
import sys

from lamina_services.cli.app import command, notes, output
from lamina_services.cli.dlq import options, records
from lamina_services.cli.dlq.reading import connect, find, warn
from lamina_services.cli.options import HOME, Cloud, Home, Json
from lamina_services.cli.up import stop_on_signals


@command
async def export(
    file: options.File,
    ids: options.Ids = None,
    *,
    subscription: options.Subscriptions = None,
    reason: options.Reason = None,
    user: options.User = None,
    app: options.App = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = None,
    cloud: Cloud = False,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Write dead letters to a new file, a JSON object a line, and leave them where they are.

    Each holds the message whole, its data as base64 and, where it is JSON, decoded as well. The file can be
    replayed (`lamina dlq replay --from-file`), also after Pub/Sub's retention has run out.
    """
    selection = options.selection_of(
        ids=ids, subscriptions=subscription, reason=reason, user=user, app=app, since=since, until=until
    )
    stop_on_signals()
    async with connect(home, cloud=cloud) as dead:
        found = await find(dead, selection, home, cloud=cloud, limit=limit)
    warn(found.elsewhere)
    if str(file) == "-":
        sys.stdout.writelines(line.decode("ascii") for line in records.lines(found.letters))
        notes().print(f"exported {len(found.letters)} dead letters")
        return
    await asyncio.to_thread(records.write, file, found.letters)
    if json:
        output().print_json(data={"exported": len(found.letters), "file": str(file)})
    else:
        output().print(f"exported {len(found.letters)} dead letters to {file}", soft_wrap=True, markup=False)
