"""What all commands share: running async code, one clear line for a mistake, and the two consoles."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, cast

import typer
from rich.console import Console
from typer.exceptions import TyperException

from lamina.errors import LaminaError

Parameters = ParamSpec("Parameters")

USAGE_ERROR = 2
INTERNAL_ERROR = 70
INTERRUPTED = 130

_NO = ("", "0", "false", "no", "off")
_TYPERS_OWN = (typer.Exit, typer.Abort, TyperException, BrokenPipeError)
"""Typer knows what to do with these."""


class LaminaApp(typer.Typer):
    """A typer app whose mistakes are one line on stderr."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line and exit: 0 done, 1 failed, 2 wrong usage, 70 our defect, 130 interrupted."""
        try:
            code = super().__call__(*args, standalone_mode=False, **kwargs)
        except TyperException as error:
            message = error.format_message()  # empty where the help was shown instead
            sys.exit(complain(message, error.exit_code) if message else error.exit_code)
        except typer.Abort as abort:
            # Typer takes every EOFError for Ctrl-D; this one LAMINA_DEBUG let through.
            if isinstance(abort.__cause__, EOFError):
                raise abort.__cause__ from None
            sys.exit(INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


def command(function: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Make a command of an async function. Every error becomes one line.

    One that Lamina raises on purpose says what to do. Any other is a defect; LAMINA_DEBUG lets it through.
    """

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            asyncio.run(function(*args, **kwargs))
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise typer.Exit(INTERRUPTED) from None
        except _TYPERS_OWN:
            raise
        except Exception as error:
            first = _first(error)
            if isinstance(first, LaminaError):
                raise typer.Exit(complain(str(first))) from None
            if os.environ.get("LAMINA_DEBUG", "").lower() not in _NO:
                raise
            raise typer.Exit(_complain_of_a_defect(first)) from None

    return run


def _first(error: Exception) -> Exception:
    """The error itself; of a group's errors the first."""
    if isinstance(error, ExceptionGroup):
        return _first(cast("ExceptionGroup[Exception]", error).exceptions[0])
    return error


def _complain_of_a_defect(error: Exception) -> int:
    what = ": ".join(part for part in (type(error).__name__, str(error)) if part)
    return complain(f"internal error: {what} (LAMINA_DEBUG=1 shows the traceback)", INTERNAL_ERROR)


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
