"""What all commands share: running async code, one clear line for a mistake, and the two consoles."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import typer
from rich.console import Console
from typer.exceptions import TyperException

from lamina.errors import LaminaError

Parameters = ParamSpec("Parameters")

USAGE_ERROR = 2
INTERRUPTED = 130


class LaminaApp(typer.Typer):
    """A typer app whose mistakes are one line on stderr."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
        try:
            code = super().__call__(*args, standalone_mode=False, **kwargs)
        except TyperException as error:
            message = error.format_message()  # empty where the help was shown instead
            sys.exit(complain(message, error.exit_code) if message else error.exit_code)
        except typer.Abort:
            sys.exit(INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


def command(function: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Make a command of an async function: errors that Lamina raises on purpose become one line."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            asyncio.run(function(*args, **kwargs))
        except LaminaError as error:
            raise typer.Exit(complain(str(error))) from None
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise typer.Exit(INTERRUPTED) from None

    return run


def complain(message: str, code: int = 1) -> int:
    """Say in one line what is wrong."""
    sys.stderr.write(f"lamina: {' '.join(message.split())}\n")
    return code


def output(*, record: bool = False) -> Console:
    """The console for results, on stdout."""
    return Console(record=record, highlight=False)


def notes() -> Console:
    """The console for progress, on stderr: results stay clean to pipe."""
    return Console(stderr=True, highlight=False)
