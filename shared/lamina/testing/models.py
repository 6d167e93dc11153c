"""A language model that follows a script, and an embedder that needs no model."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from lamina.api import EntityView
from lamina.errors import LaminaError
from lamina.model import Statement, SummaryLine, Turn
from lamina.ports import OldEpisode, Vector

_DIMENSIONS = 768
_WORD = re.compile(r"\w+")

Answers = list[Any]


@dataclass
class ScriptedModel:
    """A LanguageModel that answers from a script, in order, and records what it was asked.

    An answer may be a tuple to give back, a `LaminaError` to raise (Transient or Permanent), or a function of
    the call's arguments. With its script at an end, a method gives a digest line for each turn after the
    earlier lines, no statements, or a digest line for each episode.
    """

    name: str = "scripted/1"
    summaries: Answers = field(default_factory=Answers)
    extractions: Answers = field(default_factory=Answers)
    consolidations: Answers = field(default_factory=Answers)
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list[tuple[str, tuple[Any, ...]]])
    """(method, its arguments), oldest first."""

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        """The next scripted summary."""
        return self._answer("summarise", self.summaries, default_summary, previous, turns, budget)

    async def extract(self, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
        """The next scripted extraction."""
        return self._answer("extract", self.extractions, lambda *_: (), turn, known)

    async def consolidate(self, episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
        """The next scripted consolidation."""
        return self._answer("consolidate", self.consolidations, default_consolidation, episodes, budget)

    def _answer(self, method: str, script: Answers, default: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append((method, arguments))
        answer: Any = script.pop(0) if script else default
        if isinstance(answer, LaminaError):
            raise answer
        given: Any = answer(*arguments) if callable(answer) else answer
        return tuple(given)


def default_summary(
    previous: Sequence[SummaryLine], turns: Sequence[Turn], _budget: int
) -> tuple[SummaryLine, ...]:
    """The earlier lines, and one for each turn that holds its id."""
    return (
        *previous,
        *(
            SummaryLine(kind="digest", text=turn.turn_id, turn_id=turn.turn_id, at=turn.occurred_at)
            for turn in turns
        ),
    )


def default_consolidation(episodes: Sequence[OldEpisode], _budget: int) -> tuple[SummaryLine, ...]:
    """One line for each episode, its text."""
    return tuple(
        SummaryLine(kind="digest", text=episode.text, turn_id=episode.turn_id, at=episode.occurred_at)
        for episode in episodes
    )


@dataclass
class HashEmbedder:
    """Bags of hashed words as unit vectors: texts that share words are near, the same on every machine.

    Each call takes the next of `failures`: an error is raised, None lets the call pass.
    """

    name: str = "hash/1"
    failures: list[LaminaError | None] = field(default_factory=list[LaminaError | None])
    asked: int = 0
    """How many texts were embedded so far."""

    async def warm(self) -> None:
        """Nothing is loaded here."""

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text."""
        failure = self.failures.pop(0) if self.failures else None
        if failure:
            raise failure
        self.asked += len(texts)
        return [_vector(text) for text in texts]

    async def query(self, text: str) -> Vector:
        """The vector of a question."""
        return (await self.documents([text]))[0]


def _vector(text: str) -> Vector:
    vector = [0.0] * _DIMENSIONS
    for word in _WORD.findall(text.casefold()) or [""]:
        digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        vector[int.from_bytes(digest, "big") % _DIMENSIONS] += 1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]
