"""`lamina publish`: send turns from a file to the topic."""

import asyncio
import enum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lamina.client import TurnPublisher
from lamina.errors import ConfigurationError
from lamina_services.cli.app import command, complain, notes, output
from lamina_services.cli.options import HOME, Cloud, Home, Json
from lamina_services.cli.places import turn_publisher
from lamina_services.cli.turn_lines import (
    Bad,
    Defaults,
    Good,
    Reader,
    coding_session_turn,
    plain_turn,
    read_lines,
)

_AT_ONCE = 16


class Format(enum.StrEnum):
    """What a line of the file is."""

    TURNS = "turns"
    CODING_SESSION = "coding-session"


File = Annotated[
    Path, typer.Argument(help="JSON lines, plain or .gz; - reads standard input.", envvar="LAMINA_FILE")
]
FileFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        envvar="LAMINA_FORMAT",
        help="turns: each line is a turn, in long or short form. coding-session: each line is a turn of a "
        "coding agent's log (session_id, turn, events of role, tool, timestamp, content).",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        envvar="LAMINA_SKIP_BAD",
        help="Publish the good lines even where others are bad. Without it one bad line stops everything.",
    ),
]
AppName = Annotated[str, typer.Option(envvar="LAMINA_APP", help="For lines that name no app.")]
UserName = Annotated[str | None, typer.Option(envvar="LAMINA_USER", help="For lines that name no user.")]
ProjectName = Annotated[
    str | None, typer.Option(envvar="LAMINA_PROJECT_ID", help="For lines that name no project.")
]


@command
async def publish(
    *,
    file: File,
    file_format: FileFormat = Format.TURNS,
    app: AppName = "demo",
    user: UserName = None,
    project: ProjectName = None,
    skip_bad: SkipBad = False,
    cloud: Cloud = False,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Publish turns from a file. Every line is checked before the first is sent.

    Publishing the same file again is safe: lines without a turn_id get the same one each time.
    """
    defaults = Defaults(app=app, user_id=user, project_id=project)
    lines = await asyncio.to_thread(lambda: list(read_lines(file, reader_of(file_format), defaults)))
    good = [line for line in lines if isinstance(line, Good)]
    bad = [line for line in lines if isinstance(line, Bad)]
    for line in bad:
        complain(f"{file}: line {line.number}: {line.problem}")
    if bad and not skip_bad:
        raise ConfigurationError(
            f"nothing was published: {len(bad)} of {len(lines)} lines are bad; --skip-bad sends the others"
        )
    async with turn_publisher(home, cloud=cloud) as publisher:
        await _publish_all(publisher, good)
    if json:
        turn_ids = [line.turn.turn_id for line in good]
        output().print_json(data={"published": len(good), "bad": len(bad), "turn_ids": turn_ids})
    else:
        output().print(f"published {len(good)} turns")
        for line in good[:_SHOWN]:
            output().print(f"  {line.turn.turn_id}", markup=False)
    if bad:
        raise typer.Exit(1)


def reader_of(file_format: Format) -> Reader:
    """What reads a line of this format."""
    return coding_session_turn if file_format is Format.CODING_SESSION else plain_turn


_SHOWN = 5
"""Ids of a few turns are shown, for `lamina trace`."""


async def _publish_all(publisher: TurnPublisher, lines: list[Good]) -> None:
    """Publish a few at a time, and say how far it is."""
    places = asyncio.Semaphore(_AT_ONCE)
    columns = (TextColumn("publishing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=notes(), transient=True) as progress:
        task = progress.add_task("publishing", total=len(lines))

        async def send(line: Good) -> None:
            async with places:
                await publisher.publish(line.turn)
            progress.advance(task)

        await asyncio.gather(*(send(line) for line in lines))
