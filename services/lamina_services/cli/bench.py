"""`lamina bench`: measure the running local stack."""

import json as jsonlib
import time
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from lamina.client import TurnPublisher
from lamina_services.bench.ingest import IngestReport, run
from lamina_services.bench.synthetic import synthetic_turns
from lamina_services.cli.app import command, notes, output
from lamina_services.cli.options import HOME, Home, Json
from lamina_services.cli.tables import table
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
    state = HomeFolder(home).running()
    made = list(synthetic_turns(turns, users, run=f"bench-{time.time_ns()}"))
    columns = (TextColumn("embedded"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=notes(), transient=True) as progress:
        task = progress.add_task("embedded", total=turns)
        async with TurnPublisher.connect(state.project, emulator=state.pubsub) as publisher:
            report = await run(
                made,
                publisher,
                state.database_url,
                rate=rate,
                timeout_s=timeout_s,
                progress=lambda done: progress.update(task, completed=done),
            )
    if json:
        output().print_json(jsonlib.dumps(report.as_json()))
    else:
        _print(report)


def _print(report: IngestReport) -> None:
    shown = table("Ingest", "what", "value")
    for name, value in report.as_json().items():
        shown.add_row(name.replace("_", " "), Text(str(value)))
    output().print(shown)
