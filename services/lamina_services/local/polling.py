"""Waiting: asking again until something is so, with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from lamina.errors import DependencyUnavailable


async def until(
    is_so: Callable[[], Awaitable[bool]],
    *,
    timeout_s: float,
    what: str,
    log: Path | None = None,
    why: Callable[[], str] = lambda: "",
    every_s: float = 0.05,
) -> None:
    """Return as soon as `is_so` says True.

    DependencyUnavailable after `timeout_s` seconds: it names `what`, and `why` as far as that is known.
    """
    deadline = time.monotonic() + timeout_s
    while not await is_so():
        if time.monotonic() > deadline:
            details = [f"not ready after {timeout_s:.0f} s", why(), f"see {log}" if log else ""]
            raise DependencyUnavailable(what, "; ".join(detail for detail in details if detail))
        await asyncio.sleep(every_s)
