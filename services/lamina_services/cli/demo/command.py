"""`lamina demo`: start a stack, play the story, show every memory, check it, stop."""

import asyncio
import contextlib
import enum
import json as jsonlib
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lamina.errors import ConfigurationError
from lamina_services.cli.app import command, complain, notes
from lamina_services.cli.demo.expectations import checks
from lamina_services.cli.demo.player import ENVIRONMENT, play
from lamina_services.cli.demo.printer import print_checks, print_context, print_tiers
from lamina_services.cli.demo.story import load_story
from lamina_services.cli.options import Json, Timeout
from lamina_services.cli.up import stop_on_signals, timed_progress
from lamina_services.local.stack import Stack

_NARROWEST = 100


class Language(enum.StrEnum):
    """What the story can be told in."""

    EN = "en"
    ES = "es"
    PT = "pt"


Tongue = Annotated[
    Language, typer.Option("--language", envvar="LAMINA_LANGUAGE", help="The language the story is told in.")
]
OwnHome = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="LAMINA_DEMO_HOME",
        help="Folder for the stack; without it one that is deleted after.",
    ),
]
Keep = Annotated[
    bool, typer.Option("--keep", envvar="LAMINA_KEEP", help="Keep the folder: `lamina up` can go on with it.")
]
Svg = Annotated[
    Path | None,
    typer.Option("--svg", envvar="LAMINA_SVG", help="Also write what is printed to this SVG file."),
]


@command
async def demo(
    *,
    language: Tongue = Language.EN,
    home: OwnHome = None,
    keep: Keep = False,
    svg: Svg = None,
    timeout_s: Timeout = 60,
    json: Json = False,
) -> None:
    """Start a stack, play a conversation over two sessions, show each memory and the context, and stop.

    Fails with exit code 1 where memory is not as it must be. The offline model does the work, whatever keys
    the environment holds, unless LAMINA_MODEL says otherwise.
    """
    stop_on_signals()
    story = load_story(language.value)
    say = timed_progress(notes())
    with _folder(home, keep=keep) as folder:
        async with Stack(
            folder, env=ENVIRONMENT, preferred_ports=False, progress=say, timeout_s=timeout_s
        ) as stack:
            played = await play(story, stack.state, say=say, timeout_s=timeout_s)
        say("stopped")
    results = checks(played)
    failed = [check for check in results if not check.holds]
    console = _console(svg)
    if json:
        listed = [{"what": c.what, "holds": c.holds, "found": c.found} for c in results]
        console.print_json(jsonlib.dumps({"language": language, "checks": listed}))
    else:
        print_tiers(console, played)
        print_context(console, played)
        print_checks(console, results)
    if svg is not None:
        await asyncio.to_thread(_save, console, svg)
    if failed:
        raise typer.Exit(complain(f"{len(failed)} of {len(results)} expectations do not hold"))


@contextlib.contextmanager
def _folder(given: Path | None, *, keep: bool) -> Generator[Path]:
    """The stack's folder. One of our own making is deleted afterwards, unless it is to be kept."""
    folder = given or Path(tempfile.mkdtemp(prefix="lamina-demo-"))
    try:
        yield folder
    finally:
        if keep or given:
            notes().print(f"kept: {folder}", markup=False, soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _console(svg: Path | None) -> Console:
    """As wide as the terminal; a picture and a pipe get room enough for the tables."""
    console = Console(record=svg is not None, highlight=False)
    if svg is not None or not console.is_terminal:
        console.width = max(console.width, _NARROWEST)
    return console


def _save(console: Console, svg: Path) -> None:
    try:
        console.save_svg(str(svg), title="make demo")
    except OSError as error:
        raise ConfigurationError(f"--svg: {svg}: {error.strerror or error}") from None
