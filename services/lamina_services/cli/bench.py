"""`lamina bench`: measure the running local stack."""

import time
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lamina.client import TurnPublisher
from lamina.errors import ConfigurationError
from lamina.model import Turn
from lamina.topology import load_topology
from lamina_services.bench.ingest import run
from lamina_services.bench.synthetic import synthetic_turns
from lamina_services.cli.app import command, notes, output
from lamina_services.cli.options import HOME, Home, Json
from lamina_services.cli.publish import File, FileFormat, Format, UserName, reader_of
from lamina_services.cli.tables import table
from lamina_services.cli.turn_lines import Bad, Defaults, Good, read_lines
from lamina_services.local.home import Home as HomeFolder

bench = typer.Typer(help="Measure the running local stack.", no_args_is_help=True)

Turns = Annotated[int, typer.Option(envvar="LAMINA_BENCH_TURNS", min=2, help="How many turns to publish.")]
Users = Annotated[int, typer.Option(envvar="LAMINA_BENCH_USERS", min=1, help="How many users they are of.")]
Rate = Annotated[
    float | None,
    typer.Option(envvar="LAMINA_BENCH_RATE", min=0.1, help="Turns a second; without it as fast as it goes."),
]
Patience = Annotated[
    float,
    typer.Option("--timeout-s", envvar="LAMINA_BENCH_TIMEOUT_S", min=1, help="Give up after a standstill."),
]


@bench.command("ingest")
@command
async def ingest(
    *,
    turns: Turns = 1_000,
    users: Users = 20,
    rate: Rate = None,
    timeout_s: Patience = 120,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Publish made-up turns through the topic, follow them to the last stage, and compare what arrived.

    They are of an app of their own, and stay in the database.
    """
    made = list(synthetic_turns(turns, users, run=_new_app()))
    _show(await _follow(made, HomeFolder(home), rate, timeout_s), made[0].app, json=json)


@bench.command("replay")
@command
async def replay(
    file: File,
    *,
    file_format: FileFormat = Format.TURNS,
    user: UserName = "replay",
    rate: Rate = None,
    timeout_s: Patience = 120,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Publish a file's turns through the topic, follow them to the last stage, and compare what arrived.

    They are put into an app of their own, and stay in the database.
    """
    read = reader_of(file_format)
    app = _new_app()
    lines = list(read_lines(file, read, Defaults(app=app, user_id=user)))
    if bad := [line for line in lines if isinstance(line, Bad)]:
        raise ConfigurationError(f"{file}: line {bad[0].number}: {bad[0].problem}")
    turns = [line.turn.model_copy(update={"app": app}) for line in lines if isinstance(line, Good)]
    if len(turns) < 2:
        raise ConfigurationError(f"{file}: there must be two turns at least, to measure anything")
    _show(await _follow(turns, HomeFolder(home), rate, timeout_s), app, json=json)


async def _follow(
    turns: Sequence[Turn], home: HomeFolder, rate: float | None, timeout_s: float
) -> dict[str, Any]:
    state = home.running()
    dead = _dead_letters(home)
    columns = (TextColumn("all stages done"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=notes(), transient=True) as progress:
        task = progress.add_task("done", total=len(turns))
        async with TurnPublisher.connect(state.project, emulator=state.pubsub) as publisher:
            report = await run(
                turns,
                publisher,
                state.database_url,
                rate=rate,
                timeout_s=timeout_s,
                progress=lambda done: progress.update(task, completed=done),
            )
    return {**report.as_json(), "dead_letters": _dead_letters(home) - dead}


def _dead_letters(home: HomeFolder) -> int:
    names = [each.dead_letter_topic for each in load_topology().subscriptions]
    return sum(home.subscriptions().get(name, {}).get("backlog", 0) for name in names)


def _new_app() -> str:
    return f"bench-{time.time_ns()}"


def _show(report: dict[str, Any], app: str, *, json: bool) -> None:
    if json:
        output().print_json(data={"app": app, **report})
        return
    shown = table(f"App {app}", "what", "value")
    for name, value in report.items():
        inner = cast("dict[str, Any]", value) if isinstance(value, dict) else {"": value}
        for part, number in inner.items():
            shown.add_row(f"{name.replace('_', ' ')} {part}".strip(), str(number))
    output().print(shown)
