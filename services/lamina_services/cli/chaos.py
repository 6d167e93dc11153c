"""`lamina chaos`: prove, on stacks of its own, that faults lose nothing."""

import enum
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from lamina.errors import ConfigurationError
from lamina_services.chaos.plan import Plan
from lamina_services.chaos.story import FEWEST_SESSIONS, FEWEST_TURNS
from lamina_services.cli.app import command, complain, notes, output
from lamina_services.cli.options import Json
from lamina_services.cli.tables import plain, table
from lamina_services.cli.up import stop_on_signals, timed_progress

if TYPE_CHECKING:
    from lamina_services.chaos.run import Report

Seeds = Annotated[
    list[int] | None,
    typer.Option("--seed", envvar="LAMINA_CHAOS_SEEDS", help="What decides everything; several run in turn."),
]
Turns = Annotated[
    int, typer.Option(envvar="LAMINA_CHAOS_TURNS", min=FEWEST_TURNS, help="How many turns are told.")
]
Sessions = Annotated[
    int,
    typer.Option(envvar="LAMINA_CHAOS_SESSIONS", min=FEWEST_SESSIONS, help="Over how many sessions."),
]
Faults = Annotated[
    int, typer.Option(envvar="LAMINA_CHAOS_FAULTS", min=0, help="How often a part is killed or emptied.")
]
Every = Annotated[
    float,
    typer.Option("--every-s", envvar="LAMINA_CHAOS_EVERY_S", min=0.1, help="Seconds between two faults."),
]
Rate = Annotated[
    float,
    typer.Option(envvar="LAMINA_CHAOS_FAILING", min=0, max=0.5, help="The share of model calls that fail."),
]


class Embeds(enum.StrEnum):
    """What gives the vectors."""

    MINILM = "minilm"
    HASHES = "hashes"


Deadly = Annotated[
    float,
    typer.Option(
        envvar="LAMINA_CHAOS_DYING", min=0, max=0.1, help="The share in which the calling service dies."
    ),
]
Vectors = Annotated[
    Embeds,
    typer.Option(
        envvar="LAMINA_CHAOS_VECTORS",
        help="What embeds; hashes cost next to nothing.",
    ),
]
Patience = Annotated[
    float,
    typer.Option("--timeout-s", envvar="LAMINA_CHAOS_TIMEOUT_S", min=10, help="Give up after a standstill."),
]
Keep = Annotated[
    bool,
    typer.Option("--keep", envvar="LAMINA_CHAOS_KEEP", help="Keep both stacks' folders, with their logs."),
]

_SHOWN = 10
_DEFAULT = Plan(seed=1)


@command
async def chaos(
    *,
    seed: Seeds = None,
    turns: Turns = _DEFAULT.turns,
    sessions: Sessions = _DEFAULT.sessions,
    faults: Faults = _DEFAULT.faults,
    every_s: Every = _DEFAULT.every_s,
    failing: Rate = _DEFAULT.failing,
    deadly: Deadly = _DEFAULT.deadly,
    vectors: Vectors = Embeds.MINILM,
    timeout_s: Patience = _DEFAULT.timeout_s,
    keep: Keep = False,
    json: Json = False,
) -> None:
    """Tell a story twice, calmly and under faults, and compare what is remembered of it.

    Under faults every service, Valkey, PostgreSQL and Pub/Sub are killed again and again, Valkey is emptied,
    the model fails, a tenth is told twice, and all of it in any order; some of it is poison. Exit code 1
    unless nothing is lost, doubled or different, and exactly the poison is parked.
    """
    stop_on_signals()
    if turns < 3 * sessions:
        raise ConfigurationError(f"--turns: {sessions} sessions have {3 * sessions} turns at least")
    plans = [
        Plan(
            seed=each,
            turns=turns,
            sessions=sessions,
            faults=faults,
            every_s=every_s,
            failing=failing,
            deadly=deadly,
            vectors=vectors,
            timeout_s=timeout_s,
        )
        for each in seed or [_DEFAULT.seed]
    ]
    reports = [await _watched(plan, keep=keep) for plan in plans]
    if json:
        output().print_json(data=[report.as_json() for report in reports])
    else:
        for report in reports:
            print_report(output(), report)
    if bad := [str(report.plan.seed) for report in reports if not report.clean]:
        raise typer.Exit(complain(f"chaos won with seed {', '.join(bad)}"))


async def _watched(plan: Plan, *, keep: bool) -> "Report":
    from lamina_services.chaos.run import run  # noqa: PLC0415 - half of what any command would wait for

    folder = Path(tempfile.mkdtemp(prefix=f"lamina-chaos-{plan.seed}-"))
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    kept = True
    try:
        with Progress(*columns, console=notes(), transient=True) as bar:
            task = bar.add_task(f"seed {plan.seed}", total=1.0)
            report = await run(
                plan,
                folder,
                say=timed_progress(bar.console),
                progress=lambda what, share: bar.update(task, description=what, completed=share),
            )
        kept = keep or not report.clean
        return report
    finally:
        if kept:
            notes().print(f"kept: {folder}", markup=False, soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def print_report(console: Console, report: "Report") -> None:
    """What was done to the stack, and what came of it."""
    title = f"Seed {report.plan.seed}: {len(report.story.turns):,} turns, {report.plan.sessions} sessions"
    shown = table(title, "what", "value")
    for name, value in _rows(report):
        shown.add_row(*plain(name, value))
    console.print(shown)
    for name, verdict in (("calm telling", report.calm_verdict), ("under faults", report.verdict)):
        for what, findings in verdict.by_kind().items():
            _print_findings(console, f"{name}, {what}", findings)


def _rows(report: "Report") -> list[tuple[str, str]]:
    facts: dict[str, Any] = report.as_json()
    faults = facts["faults"]
    return [
        ("faults injected", str(sum(faults.values()))),
        *((f"  {name}", str(count)) for name, count in sorted(faults.items())),
        ("replayed from dead letters", str(facts["replayed"])),
        ("turns lost", str(facts["lost"])),
        ("duplicated", str(facts["duplicated"])),
        ("differing", str(facts["differing"])),
        ("poison parked", f"{facts['poison_parked']} of {facts['poison_expected']}"),
        ("wrongly parked", str(facts["wrongly_parked"])),
        ("the calm telling's own faults", str(facts["calm_findings"])),
        ("rows compared", ", ".join(f"{count:,} {kind}" for kind, count in facts["compared"].items())),
        ("seconds", f"{facts['calm_s']} calm, {facts['chaos_s']} under faults"),
    ]


def _print_findings(console: Console, title: str, findings: Sequence[str]) -> None:
    if not findings:
        return
    shown = table(f"{title}: {len(findings)}", "finding")
    for finding in findings[:_SHOWN]:
        shown.add_row(*plain(finding))
    console.print(shown)
