"""The offline model: deterministic rules and extractive summaries. No download, no key, no randomness."""

from collections.abc import Sequence

from lamina.api import EntityView
from lamina.model import Statement, SummaryLine, Turn
from lamina.models.offline.extraction import extract_turn
from lamina.models.offline.summary import consolidate_episodes, summarise_turns
from lamina.ports import OldEpisode


class OfflineModel:
    """A `LanguageModel` of rules: a fair default for trying and testing, no match for a large model.

    It speaks English, Spanish and Portuguese. Every text it gives is the speaker's own, but for the dates it
    adds to relative time words and the words a list shares, repeated for each item.
    """

    name = "offline/1"

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        """Rules and vetoes, what was stated, and a digest; the same for any order and batching of turns."""
        return summarise_turns(previous, turns, budget)

    async def extract(self, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
        """The turn's statements. `known` is not used, so that the order of arrival changes nothing."""
        return extract_turn(turn)

    async def consolidate(self, episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
        """Old episodes in about `budget` tokens; never empty for episodes that are there."""
        return consolidate_episodes(episodes, budget)
