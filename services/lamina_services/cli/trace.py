"""`lamina trace`: what became of one turn."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lamina.api import Receipt, StageView
from lamina.topology import load_topology
from lamina_services.cli.app import command, output
from lamina_services.cli.options import HOME, App, ContextUrl, Home, Json, User
from lamina_services.cli.places import memory_client, running_stack
from lamina_services.cli.tables import plain, table
from lamina_services.local.home import Home as HomeFolder

Turn = Annotated[str, typer.Argument(help="The turn's id, as its publisher chose it.", envvar="LAMINA_TURN")]
OfSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        envvar="LAMINA_SESSION",
        help="The turn's session; needed while only the buffer has the turn.",
    ),
]

_MARKS = {
    "done": ("✓ done", "green"),
    "waiting": ("… waiting", "yellow"),
    "set aside": ("– set aside", "yellow"),
    "parked": ("✗ parked", "bold red"),
    "unknown": ("? unknown", "magenta"),
}


@command
async def trace(
    turn: Turn,
    *,
    user: User,
    session: OfSession = None,
    app: App = "demo",
    home: Home = HOME,
    context_url: ContextUrl = None,
    json: Json = False,
) -> None:
    """Show what became of a turn: which stages are done with it, what it waits for, and why it is parked."""
    async with memory_client(home, context_url) as memory:
        receipt = await memory.receipt(app=app, user_id=user, turn_id=turn, session_id=session)
    running = running_stack(home)
    here = running is not None and context_url in (None, running.context_url)
    behind = _letters_on_their_way(home) if here else 0
    if json:
        output().print_json(data={**receipt.model_dump(mode="json"), "dead_letters_not_yet_indexed": behind})
    else:
        _print(receipt, behind)


def _letters_on_their_way(home: Path) -> int:
    """Dead letters of any turn that the index has not been told of, as far as the local stack knows."""
    counters = HomeFolder(home).subscriptions()
    return sum(counters.get(each.name, {}).get("backlog", 0) for each in load_topology().recordings)


def _print(receipt: Receipt, behind: int) -> None:
    where = f" of session {receipt.session_id}" if receipt.session_id else ""
    shown = table(f"Turn {receipt.turn_id}{where}", "stage", "state", "at (UTC)", "more")
    for stage in receipt.stages:
        words, style = _MARKS[stage.state]
        at = f"{stage.at:%Y-%m-%d %H:%M:%S}" if stage.at else ""
        name, moment, more = plain(stage.stage, at, _more(stage))
        shown.add_row(name, Text(words, style=style), moment, more)
    console = output()
    console.print(shown)
    for letter in receipt.parked:
        times = "once" if letter.failures == 1 else f"{letter.failures} times"
        line = f"{letter.subscription} gave up {times}, last at {letter.parked_at:%Y-%m-%d %H:%M:%S} UTC: "
        console.print(Text(f"{line}{letter.error}: {letter.reason}", style="red"))
    if behind:
        console.print(
            Text(f"{behind} dead letters are not indexed yet; this turn's may be among them", style="yellow")
        )
    if receipt.degraded:
        console.print(Text(f"did not answer: {', '.join(receipt.degraded)}", style="yellow"))


def _more(stage: StageView) -> str:
    words = [stage.note]
    if stage.version is not None:
        words.append(f"version {stage.version}")
    if stage.count is not None:
        words.append(f"{stage.count} {'statements' if stage.stage == 'extracted' else 'pieces'}")
    return ", ".join(word for word in words if word)
