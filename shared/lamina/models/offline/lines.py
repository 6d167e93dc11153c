"""Merges summary lines so that the result depends on which turns were covered, never on order or batches.

The lines kept are a function of the set of all lines ever derived: a join (commutative, associative,
idempotent), which the tests check. Two choices make it so. A superseded line stays, marked, until it is among
the oldest: were it removed, the room it leaves would let in a line that an earlier merge had dropped. And the
first line that does not fit is still kept: it tells a later merge that everything older has been dropped.
"""

from collections.abc import Iterable
from datetime import datetime

from lamina.model import SummaryLine
from lamina.models.tokens import EstimatedTokens

_TOKENS = EstimatedTokens()
_LINE_TOKENS = 9
"""What a line's date and dash take in a prompt, about."""
_DIGEST_SHARE = 3
"""One part in so many of the room beside the pinned lines is the digest's."""


def merge(lines: Iterable[SummaryLine], budget: int) -> tuple[SummaryLine, ...]:
    """The lines in about `budget` tokens, oldest first; rules and vetoes all, whatever they take."""
    latest: dict[tuple[str, str, str], SummaryLine] = {}
    for line in lines:
        plain = line.model_copy(update={"superseded_at": None})
        # A digest tells of its own turn; a statement is the same one whenever it is said again.
        key = (line.kind, line.turn_id if line.kind == "digest" else line.subject, _normal(line.text))
        if key not in latest or _order(latest[key]) < _order(plain):
            latest[key] = plain
    pinned = [line for line in latest.values() if line.pinned]
    # Even under many rules something else is remembered.
    room = max(budget // 4, budget - sum(map(_cost, pinned)))
    digest = [line for line in latest.values() if line.kind == "digest"]
    stated = [line for line in latest.values() if not line.pinned and line.kind != "digest"]
    digest_room = room // _DIGEST_SHARE
    kept = [*pinned, *_newest(digest, digest_room), *_newest(stated, room - digest_room)]
    return _marked(sorted(kept, key=_order))


def _newest(lines: list[SummaryLine], room: int) -> list[SummaryLine]:
    """The newest lines, up to and including the first that does not fit."""
    kept: list[SummaryLine] = []
    for line in sorted(lines, key=_order, reverse=True):
        if room <= 0:
            break
        kept.append(line)
        room -= _cost(line)
    return kept


def _marked(lines: list[SummaryLine]) -> tuple[SummaryLine, ...]:
    """Each line with when a later one filled its slot; what binds yields only to what binds."""
    successor: dict[tuple[str, bool], datetime] = {}
    marked: list[SummaryLine] = []
    for line in reversed(lines):
        until = successor.get((line.subject, line.pinned)) if line.subject else None
        marked.append(line.model_copy(update={"superseded_at": until}))
        if line.subject:
            successor[(line.subject, False)] = line.at
            if line.pinned:
                successor[(line.subject, True)] = line.at
    return tuple(reversed(marked))


def _order(line: SummaryLine) -> tuple[datetime, str, int, str, str, str]:
    return (line.at, line.turn_id, line.ordinal, line.kind, line.subject, line.text)


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())


def _cost(line: SummaryLine) -> int:
    # Of the normal form: two spellings of one line must cost the same, since only one of them is kept.
    return _TOKENS.count(_normal(line.text)) + _LINE_TOKENS
