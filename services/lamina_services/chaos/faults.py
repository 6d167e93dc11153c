"""Seeded faults: which part is killed, and when."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from lamina.errors import DependencyUnavailable
from lamina.topology import load_topology
from lamina.valkey.client import connect
from lamina.valkey.errors import translated
from lamina_services.chaos.impatience import impatient
from lamina_services.local.polling import until
from lamina_services.local.stack import Stack

EMPTY = "empty valkey"
_BACK_S = 60.0
"""How long a part may stay away before the kill of it is given up."""


@dataclass(frozen=True)
class Fault:
    """Something that happens to a part of the stack."""

    what: str
    """`kill <part>`, or EMPTY."""
    pause_s: float
    """How long after the one before it."""


def schedule(seed: int, count: int, every_s: float) -> tuple[Fault, ...]:
    """So many faults, about `every_s` seconds apart: each kind comes once before any comes again."""
    chance = random.Random(f"faults {seed}")  # noqa: S311 - a reproducible schedule, not a secret
    kinds = [f"kill {part}" for part in (*load_topology().services, "valkey", "postgres", "pubsub")]
    kinds.append(EMPTY)
    chosen: list[str] = []
    while len(chosen) < count:
        chosen.extend(chance.sample(kinds, len(kinds)))
    return tuple(Fault(what, every_s * chance.uniform(0.4, 1.6)) for what in chosen[:count])


class Saboteur:
    """Brings faults about in a running stack, and counts them."""

    def __init__(self, stack: Stack, say: Callable[[str], None] = lambda _: None) -> None:
        self.done: Counter[str] = Counter()
        self._stack = stack
        self._say = say

    async def work(self, faults: Sequence[Fault]) -> None:
        """One after the other, each after its pause."""
        for fault in faults:
            await asyncio.sleep(fault.pause_s)
            await self.strike(fault.what)

    async def strike(self, what: str) -> None:
        """Bring one about. A part that is away is killed once it is back."""
        if what == EMPTY:
            await self._empty_valkey()
        else:
            await self._kill(what.removeprefix("kill "))
        if what == "kill pubsub":
            await impatient(self._stack)
        self.done[what] += 1
        self._say(what)

    async def _kill(self, name: str) -> None:
        child = self._stack.child(name)

        async def killed() -> bool:
            process = child.identity.find() if child.identity else None
            try:
                if process is not None:
                    process.kill()
            except psutil.NoSuchProcess:
                return False
            return process is not None

        await until(killed, timeout_s=_BACK_S, what=name, log=child.command.log)

    async def _empty_valkey(self) -> None:
        client = connect(self._stack.state.valkey_url)

        async def emptied() -> bool:
            try:
                with translated():
                    await client.flushall()  # pyright: ignore[reportUnknownMemberType] - untyped driver
            except DependencyUnavailable:  # killed a moment ago
                return False
            return True

        try:
            await until(emptied, timeout_s=_BACK_S, what="valkey")
        finally:
            await client.aclose()
