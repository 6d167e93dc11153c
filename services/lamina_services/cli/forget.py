"""`lamina forget`: take a user, session, project or entity out of every place, for good."""

import sys
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from lamina.errors import ConfigurationError
from lamina.forgetting import Selection
from lamina_services.cli.app import command, output
from lamina_services.cli.migrate import DatabaseUrl
from lamina_services.cli.operating import OnlyProject, OnlySession, ValkeyUrl, everywhere, stores
from lamina_services.cli.options import HOME, App, Cloud, Home, Json, User
from lamina_services.cli.tables import plain, table
from lamina_services.forgetting.everywhere import Receipt

OnlyEntity = Annotated[
    uuid.UUID | None,
    typer.Option(
        "--entity",
        envvar="LAMINA_ONLY_ENTITY",
        help="Only what this entity says (`lamina search --json` shows ids); the turns that said it stay.",
    ),
]
Before = Annotated[
    datetime | None,
    typer.Option(
        envvar="LAMINA_ONLY_BEFORE",
        help="Only what is dated at or before this moment (UTC).",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
    ),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", envvar="LAMINA_FORGET_YES", help="Do it, without asking. It cannot be undone."),
]


@command
async def forget(
    *,
    user: User,
    app: App = "demo",
    session: OnlySession = None,
    project: OnlyProject = None,
    entity: OnlyEntity = None,
    before: Before = None,
    yes: Yes = False,
    cloud: Cloud = False,
    home: Home = HOME,
    database_url_: DatabaseUrl = None,
    valkey_url: ValkeyUrl = None,
    json: Json = False,
) -> None:
    """Forget a user, or one session, project or entity: in the database, the buffer and the dead letters.

    Shows first what would go, and asks; where nobody can answer, nothing changes without --yes. What comes
    late or is replayed afterwards is refused. Stopped at any moment, the same command finishes the work.
    """
    if sum(each is not None for each in (session, project, entity)) > 1:
        raise ConfigurationError("--session, --project and --entity exclude one another")
    at = before.replace(tzinfo=UTC) if before else None
    if at and at > datetime.now(UTC):
        raise ConfigurationError("--before: lies ahead; what is still to be said cannot be forgotten")
    chosen = Selection(app, user, session, project, entity, at)
    async with (
        stores(home, database_url_, valkey_url, cloud=cloud) as at_hand,
        everywhere(at_hand) as places,
    ):
        if not yes:
            receipt = await places.forget(chosen, act=False)
            _print(receipt, json=json)
            if json or not (sys.stdin.isatty() and typer.confirm("Forget this for good?")):
                return
        _print(await places.forget(chosen, act=True), json=json)


def _print(receipt: Receipt, *, json: bool) -> None:
    if json:
        output().print_json(data=as_json(receipt))
        return
    title = "Forgotten" if receipt.acted else "Would be forgotten"
    shown = table(f"{title}: {_what(receipt.selection)}", "place", "what", "how many")
    for place, counts in (
        ("database", receipt.database),
        ("buffer", receipt.valkey),
        ("dead letters", receipt.queues),
    ):
        for name, number in sorted(counts.items()):
            shown.add_row(*plain(place, name.replace("_", " "), str(number)))
    output().print(shown if receipt.total else f"{title}: nothing is left of {_what(receipt.selection)}")
    for name, number in sorted(receipt.stays.items()):
        output().print(f"{number} {name} stay: forget their sessions too if they should go", markup=False)
    if receipt.summarised_again:
        output().print(f"sessions to be summarised again from what is left: {receipt.summarised_again}")
    if not receipt.acted:
        output().print("nothing was changed: --yes does it")


def _what(chosen: Selection) -> str:
    names = {"session": chosen.session_id, "project": chosen.project_id, "entity": chosen.entity_id}
    part = names.get(chosen.scope)
    what = f"user {chosen.user_id} of {chosen.app}"
    what = f"{chosen.scope} {part} of {what}" if part else what
    return f"{what}, up to {chosen.before:%Y-%m-%d %H:%M:%S}" if chosen.before else what


def as_json(receipt: Receipt) -> dict[str, Any]:
    """The receipt as JSON values."""
    chosen = receipt.selection
    return {
        "app": chosen.app,
        "user_id": chosen.user_id,
        "scope": chosen.scope,
        "session_id": chosen.session_id,
        "project_id": chosen.project_id,
        "entity_id": str(chosen.entity_id) if chosen.entity_id else None,
        "before": chosen.before.isoformat() if chosen.before else None,
        "acted": receipt.acted,
        "forgotten_at": receipt.forgotten_at.astimezone(UTC).isoformat(),
        "database": dict(receipt.database),
        "valkey": dict(receipt.valkey),
        "dead_letters": dict(receipt.queues),
        "stays": dict(receipt.stays),
        "summarised_again": receipt.summarised_again,
    }
