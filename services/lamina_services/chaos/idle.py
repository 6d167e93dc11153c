"""Waiting until every turn has been through every stage and nothing is under way."""

import asyncio
import time
from collections.abc import Callable, Sequence

import psycopg

from lamina.errors import DependencyUnavailable
from lamina.events import TurnRecorded
from lamina.model import Turn
from lamina.topology import load_topology
from lamina_services.chaos.graveyard import Graveyard
from lamina_services.chaos.impatience import report_is_stale
from lamina_services.chaos.story import Poison, key_of
from lamina_services.local.stack import Stack

_CONSUMERS = ("entity-extractor", "episodic-embedder")
_STILL_S = 2.5
"""The emulator's report may be a second old: idle is what stays idle for longer than that."""
_EVERY_S = 0.3
_OFTEN_S = 0.03


class Watch:
    """Follows a part of the story through a stack.

    `poison`: what of it must be parked before it is through.
    """

    def __init__(
        self, stack: Stack, graveyard: Graveyard, turns: Sequence[Turn], poison: frozenset[Poison]
    ) -> None:
        self._stack = stack
        self._graveyard = graveyard
        self._poison = poison
        self._events = [str(TurnRecorded(turn=turn).event_id()) for turn in turns]
        refused = {each.key for each in poison if each.subscription in _CONSUMERS}
        self._wanted = len(_CONSUMERS) * len(turns) - sum(key_of(turn) in refused for turn in turns)
        self._done = 0

    async def until_idle(
        self, *, timeout_s: float, progress: Callable[[float], None] = lambda _: None
    ) -> None:
        """Return once all is done. What became a dead letter by bad luck is told again meanwhile.

        DependencyUnavailable where nothing moves for `timeout_s` seconds. `progress` is told the share done.
        """
        moved = now = time.monotonic()
        still_since: float | None = None
        while still_since is None or now - still_since < _STILL_S:
            letters, before = await self._graveyard.visit(), self._done
            self._done = await self._stages_done()
            progress(self._done / max(self._wanted, 1))
            now = time.monotonic()
            still_since = (still_since or now) if self._is_idle(letters) else None
            moved = now if letters or self._done > before else moved
            if now - moved > timeout_s:
                raise DependencyUnavailable("pipeline", f"stands still: {self._state()}")
            await asyncio.sleep(_EVERY_S)

    async def until_through(self, *, timeout_s: float) -> None:
        """Return as soon as every stage has had every turn; something may still be under way."""
        deadline = time.monotonic() + timeout_s
        while (done := await self._stages_done()) < self._wanted:
            if time.monotonic() > deadline:
                raise DependencyUnavailable("pipeline", f"{done} of {self._wanted} stages done")
            await asyncio.sleep(_OFTEN_S)

    def _is_idle(self, letters: int) -> bool:
        at_large = self._poison - self._graveyard.parked.keys()
        return not letters and self._done >= self._wanted and not at_large and self._backlog() == 0

    async def _stages_done(self) -> int:
        """How many of the turns' stages the database has; what was known before, while it is away."""
        try:
            connecting = psycopg.AsyncConnection.connect(self._stack.state.database_url, connect_timeout=5)
            async with await connecting as db:
                cursor = await db.execute(
                    """
                    SELECT count(*) FROM lamina.processed_events
                    WHERE event_id = ANY(%(events)s::uuid[]) AND consumer = ANY(%(consumers)s)
                    """,
                    {"events": self._events, "consumers": list(_CONSUMERS)},
                )
                row = await cursor.fetchone()
        except psycopg.OperationalError:
            return self._done
        return int(row[0]) if row else 0

    def _backlog(self) -> int | None:
        """Messages that wait for a service; None while the emulator that runs now has not said so."""
        if report_is_stale(self._stack):
            return None
        counters = self._stack.home.subscriptions()
        names = [each.name for each in load_topology().subscriptions]
        return sum(counters.get(name, {}).get("backlog", 0) for name in names)

    def _state(self) -> str:
        at_large = sorted(each.key for each in self._poison - self._graveyard.parked.keys())
        done = f"{self._done} of {self._wanted} stages done"
        return f"{done}, backlog {self._backlog()}, poison at large {at_large}"
