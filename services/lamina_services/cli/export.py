"""`lamina export`: a user's whole memory as JSON Lines."""

import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from lamina.errors import ConfigurationError
from lamina.forgetting import Selection
from lamina_services.cli.app import command, notes
from lamina_services.cli.migrate import DatabaseUrl
from lamina_services.cli.operating import OnlyProject, OnlySession, ValkeyUrl, stores
from lamina_services.cli.options import HOME, App, Cloud, Home, User
from lamina_services.forgetting.exporting import export as lines_of

Out = Annotated[
    Path | None,
    typer.Option("--out", envvar="LAMINA_OUT", help="Write to this new file; without it to stdout."),
]
Vectors = Annotated[
    bool,
    typer.Option("--vectors", envvar="LAMINA_VECTORS", help="With the vectors as well."),
]


@command
async def export(
    *,
    user: User,
    app: App = "demo",
    session: OnlySession = None,
    project: OnlyProject = None,
    out: Out = None,
    vectors: Vectors = False,
    cloud: Cloud = False,
    home: Home = HOME,
    database_url_: DatabaseUrl = None,
    valkey_url: ValkeyUrl = None,
) -> None:
    """Write all that is remembered of a user, or of one session or project, as JSON Lines.

    One object a line: `kind` says what it is, and names the field that holds it. Turns are exactly as they
    were published, those still on their way among them. The last line is of kind `end`, with counts: a file
    without it was cut off.
    """
    if session is not None and project is not None:
        raise ConfigurationError("--session and --project exclude one another")
    chosen = Selection(app, user, session, project)
    async with stores(home, database_url_, valkey_url, cloud=cloud) as at:
        lines = lines_of(
            chosen, database=at.database, buffer=at.buffer, buffered=at.buffered, vectors=vectors
        )
        written = 0
        with _opened(out) as file:
            async with aclosing(lines):
                async for line in lines:
                    file.write(line)
                    written += 1
            file.flush()
    if out is not None:
        notes().print(f"{written - 1} objects are in {out}", markup=False, soft_wrap=True)


def _opened(out: Path | None) -> BinaryIO:
    """The file, which only its owner may read; stdout stays open."""
    if out is None:
        return os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    try:
        return os.fdopen(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise ConfigurationError(f"--out: {out} exists already; name a new file") from None
    except OSError as error:
        raise ConfigurationError(f"--out: {out} cannot be written: {error.strerror}") from error
