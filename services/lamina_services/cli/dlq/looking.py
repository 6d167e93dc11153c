"""`lamina dlq list` and `lamina dlq show`: look, and leave everything as it was."""

from dataclasses import asdict
from typing import Annotated

import typer

from lamina_services.cli.app import command, output
from lamina_services.cli.dlq import options
from lamina_services.cli.dlq.printing import print_groups, print_letters, print_whole
from lamina_services.cli.dlq.reading import connect, find, warn
from lamina_services.cli.dlq.records import facts, record
from lamina_services.cli.dlq.selection import groups
from lamina_services.cli.options import HOME, Cloud, Home, Json

Id = Annotated[
    str,
    typer.Argument(
        envvar="LAMINA_DLQ_ID", help="Event id or message id; the beginning of one is enough.", metavar="ID"
    ),
]


@command
async def list_(
    *,
    subscription: options.Subscriptions = None,
    reason: options.Reason = None,
    user: options.User = None,
    app: options.App = None,
    since: options.Since = None,
    until: options.Until = None,
    cloud: Cloud = False,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Count the dead letters by subscriber and error, and show the oldest ones. Changes nothing.

    A dead letter that somebody else holds, such as another `lamina dlq`, is not seen; on the local stack
    those are counted apart.
    """
    selection = options.selection_of(
        subscriptions=subscription, reason=reason, user=user, app=app, since=since, until=until
    )
    async with connect(home, cloud=cloud) as dead:
        found = await find(dead, selection, home, cloud=cloud)
    letters = found.letters
    if json:
        body = {
            "depth": len(letters),
            "held_elsewhere": dict(found.elsewhere),
            "oldest": letters[0].parked_at if letters else None,
            "groups": [asdict(group) for group in groups(letters)],
            "letters": [facts(letter) for letter in letters],
        }
        output().print_json(data=body, default=str)
        return
    print_groups(output(), letters, f"{len(letters)} dead letters")
    if letters:
        print_letters(output(), letters, "One by one, oldest first")
    warn(found.elsewhere)


@command
async def show(*, id_: Id, cloud: Cloud = False, home: Home = HOME, json: Json = False) -> None:
    """Show one dead letter whole: what failed, its attributes, its data. Changes nothing.

    Where several subscribers failed at the same event, each of its dead letters is shown.
    """
    selection = options.selection_of(ids=[id_])
    async with connect(home, cloud=cloud) as dead:
        found = await find(dead, selection, home, cloud=cloud)
    if json:
        output().print_json(data=[record(letter) for letter in found.letters])
        return
    for letter in found.letters:
        print_whole(output(), letter)
