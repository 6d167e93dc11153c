"""Gemini as the language model."""

from collections.abc import Sequence

from google.genai import Client

from lamina.api import EntityView
from lamina.model import Statement, SummaryLine, Turn
from lamina.models.gemini.asking import Asker
from lamina.models.gemini.extracting import Extraction, extraction_prompt, statements_of
from lamina.models.gemini.summarising import (
    Lines,
    consolidation_prompt,
    episode_sources,
    fitted,
    lines_of,
    summary_prompt,
    summary_sources,
    with_pinned,
)
from lamina.models.gemini.usage import OnUsage, ignore_usage
from lamina.ports import OldEpisode
from lamina.settings import Settings

PROMPTS = 1
"""Version of the prompts and of the checks behind them: raise it whenever either changes."""


class GeminiModel:
    """Asks Gemini and checks what it answers: code decides who said what, when, and whether they did.

    `answers`: how many answers to a question are looked at before ModelAnswerInvalid.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        answers: int = 2,
        on_usage: OnUsage = ignore_usage,
    ) -> None:
        self.name = f"{settings.gemini_model}/{PROMPTS}"
        self._asker = Asker(client, settings.gemini_model, answers=answers, on_usage=on_usage)

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        """The lines of `previous` and the turns, compressed to about `budget` tokens."""
        sources = summary_sources(previous, turns)
        prompt = summary_prompt(previous, turns, budget)
        answer = await self._asker.ask(prompt, Lines, fits=lambda given: bool(lines_of(given, sources)))
        return fitted(with_pinned(previous, lines_of(answer, sources)), budget)

    async def extract(self, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
        """What the turn says that is worth remembering, each statement with its evidence checked."""
        prompt = extraction_prompt(turn, known)
        return statements_of(await self._asker.ask(prompt, Extraction), turn, known)

    async def consolidate(self, episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
        """Old episodes in about `budget` tokens, each line naming the turn it stands on."""
        sources = episode_sources(episodes)
        prompt = consolidation_prompt(episodes, budget)
        answer = await self._asker.ask(prompt, Lines, fits=lambda given: bool(lines_of(given, sources)))
        return fitted(lines_of(answer, sources), budget)
