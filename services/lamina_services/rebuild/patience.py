"""Asking a model that may be overloaded, or may refuse."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from lamina.errors import ModelAnswerInvalid, ModelRefused, ModelRequestInvalid, Transient

T = TypeVar("T")

REFUSALS = (ModelRefused, ModelAnswerInvalid, ModelRequestInvalid)
"""What is wrong with one turn, and no reason to give up the others."""
IN_A_ROW = 10
"""So many refusals one after the other are the deployment's fault, not the turns'."""
DELAYS_S = (2.0, 8.0, 30.0)


class Patience:
    """Asks again after a transient failure, some seconds later each time; then the failure stands."""

    def __init__(self, delays_s: Sequence[float] = DELAYS_S) -> None:
        self._delays_s = delays_s

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to the question, which is asked anew each time."""
        for delay in self._delays_s:
            try:
                return await question()
            except Transient:
                await asyncio.sleep(delay)
        return await question()


class Refusals:
    """Counts refusals in a row."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def none(self) -> None:
        """The model took one."""
        self._in_a_row = 0

    def one_more(self, error: Exception) -> None:
        """The model refused one. Raises the error where it has refused everything for a while."""
        self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW:
            raise error
