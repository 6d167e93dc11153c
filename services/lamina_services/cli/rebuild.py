"""`lamina rebuild`: derive one user's memory again from the log of turns."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from lamina.errors import ConfigurationError, NotFound
from lamina.postgres.rebuilds import PostgresRebuilds, Rebuild, RebuildStage
from lamina.wiring import Wiring
from lamina_services.cli.app import command, notes, output
from lamina_services.cli.migrate import DatabaseUrl
from lamina_services.cli.operating import OnlySession, ValkeyUrl, stores
from lamina_services.cli.options import HOME, App, Cloud, Home, Json, User
from lamina_services.cli.tables import nothing, plain, table
from lamina_services.rebuild.difference import Difference
from lamina_services.rebuild.job import Outcome, Progress
from lamina_services.rebuild.start import rebuild as rebuild_memory

Stage = Annotated[
    RebuildStage, typer.Option(envvar="LAMINA_STAGE", help="Which memory: entities, episodes or summaries.")
]
OnlyVectors = Annotated[
    bool,
    typer.Option(
        "--only-vectors",
        envvar="LAMINA_ONLY_VECTORS",
        help="Of entities: only the vectors, for another embedding model. No turn is extracted again.",
    ),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", envvar="LAMINA_REBUILD_YES", help="Put what was made in the old memory's place."),
]
Discard = Annotated[
    bool, typer.Option("--discard", envvar="LAMINA_DISCARD", help="Throw away what was made so far.")
]


@command
async def rebuild(
    *,
    user: User,
    stage: Stage,
    app: App = "demo",
    session: OnlySession = None,
    only_vectors: OnlyVectors = False,
    yes: Yes = False,
    discard: Discard = False,
    cloud: Cloud = False,
    home: Home = HOME,
    database_url_: DatabaseUrl = None,
    valkey_url: ValkeyUrl = None,
    json: Json = False,
) -> None:
    """Derive memory again from the log of turns, beside the memory in use, and show the difference.

    For when a prompt, an extractor or an embedding model has changed. Without --yes nothing changes. Stopped
    at any moment, the same command goes on where it was.
    """
    if yes and discard:
        raise ConfigurationError("--yes and --discard exclude each other")
    if only_vectors and stage != "entities":
        raise ConfigurationError(
            "--only-vectors is for --stage entities: episodes keep what stays the same, summaries have none"
        )
    async with stores(home, database_url_, valkey_url, cloud=cloud) as at:
        if discard:
            await _discard(PostgresRebuilds(at.database), app, user, stage, json=json)
            return
        try:
            with _bar(stage) as progress:
                outcome = await rebuild_memory(
                    app,
                    user,
                    stage,
                    session,
                    database=at.database,
                    buffer=at.buffer,
                    parts=Wiring(at.settings),
                    swap=yes,
                    only_vectors=only_vectors,
                    progress=progress,
                )
        except asyncio.CancelledError:
            notes().print("what was made is kept: run the command again to go on, or --discard it")
            raise
    _print(outcome, json=json)


async def _discard(
    rebuilds: PostgresRebuilds, app: str, user: str, stage: RebuildStage, *, json: bool
) -> None:
    found = await rebuilds.find(app, user, stage)
    if found is None:
        raise NotFound(f"no rebuild of the {stage} of {user} is open")
    await rebuilds.discard(found)
    if json:
        output().print_json(data={**_about(found), "state": "abandoned"})
    else:
        output().print("what had been made is thrown away; memory is as it was")


@contextmanager
def _bar(stage: str) -> Generator[Progress]:
    """A progress bar on stderr, where that is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = notes()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{stage} made again", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield progress


def _about(made: Rebuild) -> dict[str, str | None]:
    return {
        "rebuild_id": str(made.rebuild_id),
        "stage": made.stage,
        "session_id": made.session_id,
        "made_by": made.maker,
        "embedder": made.embedder,
    }


def _print(outcome: Outcome, *, json: bool) -> None:
    state = "swapped" if outcome.swapped else "ready"
    if json:
        output().print_json(
            data={**_about(outcome.rebuild), "state": state, **asdict(outcome.difference)}, default=str
        )
        return
    _print_difference(outcome.difference)
    output().print(
        "the new memory is in use"
        if outcome.swapped
        else "nothing is changed yet: run it with --yes to use the new memory, or --discard to throw it away"
    )


def _print_difference(difference: Difference) -> None:
    title = "Changes"
    if difference.changes:
        shown = table(title, "", "where", "what")
        for change in difference.changes:
            what = " → ".join(text for text in (change.before, change.after) if text)
            shown.add_row(*plain(change.how, change.where, what))
        output().print(shown)
    else:
        output().print(nothing(title))
    for refusal in difference.refused:
        of = f"turn {refusal.turn_id} of {refusal.session_id}" if refusal.turn_id else refusal.session_id
        output().print(f"refused, kept as it was: {of}: {refusal.reason}", markup=False)
    counts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in difference.counts.items())
    output().print(counts, markup=False)
