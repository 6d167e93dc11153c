"""When a tick is due, and whether a consolidation may replace the episodes it was made from."""

from collections.abc import Sequence
from typing import Any, cast

from lamina import strict_json
from lamina.envelope import Incoming, validate
from lamina.errors import ModelAnswerInvalid
from lamina.events import CompactionDue
from lamina.model import SummaryLine
from lamina.ports import Consolidation, OldEpisode, TokenCounter


def tick_of(incoming: Incoming) -> CompactionDue:
    """The tick. Cloud Scheduler sends the same body every time, so the publish time says when it is due."""
    tick: Any = strict_json.loads(incoming.data or b"{}")
    if isinstance(tick, dict) and incoming.publish_time:
        tick = {"due_at": incoming.publish_time, **cast(dict[str, Any], tick)}
    return validate(CompactionDue, tick)


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
