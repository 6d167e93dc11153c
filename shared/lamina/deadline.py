"""Asking the dependencies within a deadline: what is late is let go, never waited for."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from lamina.errors import DependencyUnavailable, LaminaError
from lamina.telemetry import asking, log

T = TypeVar("T")

_abandoned: set[asyncio.Task[Any]] = set()
"""Keeps late tasks alive until their cancellation is through: a driver may take its time over it."""


class Deadline:
    """A moment until which an answer must be given."""

    def __init__(self, milliseconds: float) -> None:
        self.total_s = milliseconds / 1000
        self._ends = time.perf_counter() + self.total_s

    @property
    def left_s(self) -> float:
        """Seconds left, not below 0."""
        return max(0.0, self._ends - time.perf_counter())


class Attempt(Generic[T]):
    """One question to one dependency, running since it was made."""

    def __init__(self, what: str, question: Coroutine[Any, Any, T]) -> None:
        self._what = what
        self._began = time.perf_counter()
        self._task = asyncio.ensure_future(self._timed(question))
        self.took_ms = 0.0
        self.failed = False
        """Whether it was down or late."""

    async def within(self, seconds: float) -> T | None:
        """The answer; None where the dependency is down or takes longer."""
        await asyncio.wait({self._task}, timeout=max(0.0, seconds))
        self.took_ms = self.took_ms or (time.perf_counter() - self._began) * 1000
        if not self._task.done():
            _let_go(self._task)
            log.warning("%s was late: %.0f ms", self._what, self.took_ms)
            self.failed = True
            return None
        try:
            return self._task.result()
        except LaminaError as error:
            log.warning("%s did not answer: %s", self._what, error)
            self.failed = True
            return None

    async def _timed(self, question: Coroutine[Any, Any, T]) -> T:
        try:
            with asking(self._what):
                return await question
        finally:
            self.took_ms = (time.perf_counter() - self._began) * 1000


async def answer_of(what: str, question: Coroutine[Any, Any, T], seconds: float) -> T:
    """The answer. DependencyUnavailable after so many seconds, even where the driver cannot be cancelled:
    a server that is frozen, not gone, answers neither the question nor the wish to end it."""
    task = asyncio.ensure_future(question)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        _let_go(task)
        raise DependencyUnavailable(what, f"no answer within {seconds:.0f} s")
    return task.result()


def _let_go(task: asyncio.Task[Any]) -> None:
    _abandoned.add(task)
    task.add_done_callback(_forget)
    task.cancel()


def _forget(task: asyncio.Task[Any]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report what nobody waits for
