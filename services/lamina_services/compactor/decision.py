"""Whether a consolidation may replace the episodes it was made from."""

from collections.abc import Sequence

from lamina.errors import ModelAnswerInvalid
from lamina.model import SummaryLine
from lamina.ports import Consolidation, OldEpisode, TokenCounter


def checked(
    lines: Sequence[SummaryLine],
    episodes: Sequence[OldEpisode],
    *,
    model: str,
    minimum_ratio: float,
    tokens: TokenCounter,
) -> Consolidation:
    """The consolidation, if it is sound; else ModelAnswerInvalid and everything stays as it was.

    Suspicious: no lines, a line that stands on a turn outside the batch, or so few tokens that the batch
    cannot have been read.
    """
    turns = {episode.turn_id for episode in episodes}
    strangers = sorted({line.turn_id for line in lines} - turns)
    before = sum(tokens.count(episode.text) for episode in episodes)
    after = sum(tokens.count(line.text) for line in lines)
    if not any(line.text.strip() for line in lines):
        raise ModelAnswerInvalid(f"compaction refused: nothing was said of {len(episodes)} episodes")
    if strangers:
        raise ModelAnswerInvalid(f"compaction refused: turns {strangers[:3]} are not in the batch")
    if after < before * minimum_ratio:
        raise ModelAnswerInvalid(
            f"compaction refused: {before} tokens would shrink to {after}, under {minimum_ratio:.0%}"
        )
    covers = tuple(sorted((episode.episode_id for episode in episodes), key=str))
    return Consolidation(lines=tuple(lines), covers=covers, model=model)
