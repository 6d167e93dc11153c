"""A session and everything the summarizer works with, in this process."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lamina.api import EntityView
from lamina.events import MemoryChanged, TurnRecorded
from lamina.model import SessionKey, Statement, Summary, SummaryLine, Turn
from lamina.ports import OldEpisode
from lamina.settings import Settings
from lamina.testing.buffer import InMemoryBuffer
from lamina.testing.clock import StoppedClock
from lamina.testing.publisher import InMemoryPublisher
from lamina.testing.summaries import InMemorySummaries
from lamina_services.summarizer.handler import on_turn_recorded

BEGAN = datetime(2026, 3, 1, 9, tzinfo=UTC)
SESSION = SessionKey(app="shop", user_id="ana", session_id="s2")
BEFORE = SESSION.model_copy(update={"session_id": "s1"})


def a_turn(number: int, **fields: Any) -> Turn:
    return Turn.model_validate(
        {
            **SESSION.model_dump(),
            "turn_id": f"t{number:02}",
            "occurred_at": BEGAN + timedelta(minutes=number),
            "user": f"message {number}",
            **fields,
        }
    )


class ModelThatKeepsEverything:
    """One line a turn, so that a test sees which turns a summary went through."""

    name = "keeps-everything"

    def __init__(self) -> None:
        self.calls = 0

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        self.calls += 1
        await asyncio.sleep(0)  # lets another worker in between
        lines = [
            SummaryLine(kind="digest", text=turn.turn_id, turn_id=turn.turn_id, at=turn.occurred_at)
            for turn in turns
        ]
        return (*previous, *lines)

    async def extract(self, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
        raise NotImplementedError

    async def consolidate(self, episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
        raise NotImplementedError


class Words:
    """A token is a character."""

    def count(self, text: str) -> int:
        return len(text)


class World:
    """A session, and everything the summarizer works with."""

    def __init__(self) -> None:
        self.buffer = InMemoryBuffer()
        self.summaries = InMemorySummaries()
        self.publisher = InMemoryPublisher()
        self.model = ModelThatKeepsEverything()
        self.settings = Settings(summary_trigger_turns=3, summary_keep_turns=2)

    async def record(self, *turns: Turn) -> None:
        for turn in turns:
            await self.buffer.append(turn)

    async def summarise(self, turn: Turn, **other: Any) -> None:
        parts: dict[str, Any] = {
            "buffer": self.buffer,
            "summaries": self.summaries,
            "publisher": self.publisher,
            "model": self.model,
            "tokens": Words(),
            "clock": StoppedClock(),
            "settings": self.settings,
        }
        await on_turn_recorded(TurnRecorded(turn=turn), **{**parts, **other})

    @property
    def summary(self) -> list[str]:
        versions = self.summaries.versions.get(SESSION, [])
        return [line.text for line in versions[-1].lines] if versions else []

    async def buffered(self) -> list[str]:
        return [turn.turn_id for turn in (await self.buffer.read(SESSION)).turns]

    async def end(self) -> tuple[list[str], list[str], set[str], Summary | None]:
        """What must be the same however it was reached."""
        announced = {c for p in self.publisher.published if isinstance(p, MemoryChanged) for c in p.changed}
        return self.summary, await self.buffered(), announced, (await self.buffer.read(SESSION)).summary
