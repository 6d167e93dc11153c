"""Waiting is polling with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], within: float = 5.0) -> T:
    """The first truthy value of the condition; AssertionError with the last value when the time is over."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s; last seen: {value!r}")
        time.sleep(0.01)
    return value
