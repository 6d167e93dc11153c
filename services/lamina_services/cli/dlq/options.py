"""The options that the commands on dead letters share.

Their variables are LAMINA_DLQ_*, apart from those of the other commands: a LAMINA_USER set for reading memory
must not narrow down what is purged.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from lamina.errors import ConfigurationError
from lamina.topology import load_topology
from lamina_services.cli.dlq.selection import Selection, moment

Ids = Annotated[
    list[str] | None,
    typer.Argument(
        envvar="LAMINA_DLQ_IDS",
        help="Only these, by event id or message id; the beginning of one is enough.",
    ),
]
Subscriptions = Annotated[
    list[str] | None,
    typer.Option(
        "--subscription", envvar="LAMINA_DLQ_SUBSCRIPTION", help="Only what this subscriber failed at."
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        envvar="LAMINA_DLQ_REASON", help="Only with this error, or with this text in the reason, in any case."
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        envvar="LAMINA_DLQ_USER",
        help="Only this user's; an empty one means those whose user cannot be read.",
    ),
]
App = Annotated[str | None, typer.Option(envvar="LAMINA_DLQ_APP", help="Only this application's.")]
Since = Annotated[
    str | None,
    typer.Option(
        envvar="LAMINA_DLQ_SINCE",
        help="Only dead since then: a date, a time as 2026-03-01T12:00Z, or how long ago as 2h, 3d.",
    ),
]
Until = Annotated[
    str | None, typer.Option(envvar="LAMINA_DLQ_UNTIL", help="Only dead before then, in the same forms.")
]
Limit = Annotated[
    int | None,
    typer.Option(
        envvar="LAMINA_DLQ_LIMIT",
        min=1,
        help="At most so many: a few to try first, or portions of very many.",
    ),
]
ReplayThem = Annotated[
    bool,
    typer.Option("--yes", envvar="LAMINA_DLQ_REPLAY_YES", help="Do it. Without this they are only shown."),
]
RemoveThem = Annotated[
    bool,
    typer.Option("--yes", envvar="LAMINA_DLQ_PURGE_YES", help="Do it. Without this they are only shown."),
]
Rate = Annotated[
    float | None,
    typer.Option(
        envvar="LAMINA_DLQ_RATE", min=0.01, help="Messages a second; without it, as fast as it goes."
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        envvar="LAMINA_DLQ_FROM_FILE",
        help="Replay what an export or a purge wrote, in place of what Pub/Sub holds.",
    ),
]
To = Annotated[
    Path | None,
    typer.Option(
        envvar="LAMINA_DLQ_TO",
        help="The new file that gets what is removed; by default dead-letters-<time>.jsonl, here.",
    ),
]
File = Annotated[
    Path,
    typer.Argument(
        envvar="LAMINA_DLQ_FILE", help="The new file, in JSON Lines; - writes to standard output."
    ),
]


def selection_of(
    *,
    ids: Sequence[str] | None = None,
    subscriptions: Sequence[str] | None = None,
    reason: str | None = None,
    user: str | None = None,
    app: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Selection:
    """What the command line asks for. ConfigurationError where a part of it makes no sense."""
    known = [each.name for each in load_topology().subscriptions]
    if wrong := sorted(set(subscriptions or ()) - set(known)):
        raise ConfigurationError(
            f"--subscription: there is no {', '.join(wrong)}; the subscribers are {', '.join(known)}"
        )
    now = datetime.now(UTC)
    return Selection(
        subscriptions=tuple(dict.fromkeys(subscriptions or ())),
        reason=reason,
        user=user,
        app=app,
        since=moment(since, now, "--since") if since else None,
        until=moment(until, now, "--until") if until else None,
        ids=tuple(ids or ()),
    )
