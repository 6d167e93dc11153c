"""Which turns a summary takes over now, and what a model may not leave out. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from lamina.errors import ModelAnswerInvalid
from lamina.model import SummaryLine, Turn
from lamina.ports import BufferView, TokenCounter
from lamina.settings import Settings

BATCH = 2
"""One summary takes over at most this many times `summary_trigger_tokens`: a backlog goes in steps."""

_NO_TEXT = ("inline_data", "inlineData", "thought_signature", "thoughtSignature")


@dataclass(frozen=True)
class Plan:
    """What to do with a session's buffer."""

    turns: tuple[Turn, ...] = ()
    """To summarise, oldest first."""
    trim_only: tuple[str, ...] = ()
    """Covered already (a crash came between commit and trim, or the buffer was restored): only let go of."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.turns or self.trim_only)


def plan(view: BufferView, *, covered: frozenset[str], tokens: Mapping[str, int], settings: Settings) -> Plan:
    """Decide what leaves the buffer. `tokens`: how many each turn has, by its id.

    At `summary_trigger_turns` turns or `summary_trigger_tokens` tokens that no summary covers, the oldest go.
    The latest `summary_keep_turns` stay, or fewer where those alone would trigger again, and the latest one
    always. Turns that still grow neither count nor go.
    """
    closed = [turn for turn in view.turns if turn.turn_id not in view.open_turns]
    waiting = [turn for turn in closed if turn.turn_id not in covered]
    sizes = [tokens[turn.turn_id] for turn in waiting]
    triggered = (
        len(waiting) >= settings.summary_trigger_turns or sum(sizes) >= settings.summary_trigger_tokens
    )
    going = waiting[: len(waiting) - _kept(sizes, settings)] if triggered else []
    return Plan(
        turns=tuple(going[: _batch(sizes[: len(going)], BATCH * settings.summary_trigger_tokens)]),
        trim_only=tuple(turn.turn_id for turn in closed if turn.turn_id in covered),
    )


def _kept(sizes: Sequence[int], settings: Settings) -> int:
    """How many of the latest turns stay."""
    latest = accumulate(reversed(sizes[-settings.summary_keep_turns :]))
    fitting = sum(1 for total in latest if total < settings.summary_trigger_tokens)
    return max(1, fitting)


def _batch(sizes: Sequence[int], limit: int) -> int:
    """How many of the oldest turns fit the limit; at least one."""
    return max(1, sum(1 for total in accumulate(sizes) if total <= limit))


def readable(turn: Turn) -> str:
    """The turn as a model reads it, for counting tokens: every part, less binary data and signatures."""
    return "\n".join(
        json.dumps({name: value for name, value in part.items() if name not in _NO_TEXT}, ensure_ascii=False)
        for event in turn.events
        for part in event.parts
    )


def sizes_of(turns: Sequence[Turn], tokens: TokenCounter) -> dict[str, int]:
    """How many tokens each turn has, by its id."""
    return {turn.turn_id: tokens.count(readable(turn)) for turn in turns}


def checked(previous: Sequence[SummaryLine], lines: Sequence[SummaryLine]) -> tuple[SummaryLine, ...]:
    """The model's lines, with every earlier rule and veto that it left out put back in front.

    ModelAnswerInvalid where it forgot everything.
    """
    if previous and not lines:
        raise ModelAnswerInvalid("the model answered an existing summary with an empty one")
    said = {_words(line.text) for line in lines}
    forgotten = tuple(line for line in previous if line.pinned and _words(line.text) not in said)
    return (*forgotten, *lines)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())
