"""In which order sessions are summarised again, and in which steps. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

BACK = 16
"""How many sessions back an inherited summary is looked for, as `lamina.lineage` does."""


@dataclass(frozen=True)
class Covered:
    """A turn that a session's summary covers."""

    turn_id: str
    occurred_at: datetime
    version: int
    """The version that took it over."""
    set_aside: bool = False
    """The lines go without it."""


def steps_of(covered: Iterable[Covered], sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """The turns in steps, oldest first.

    Each step takes over as many turns as a version once did, so that the same model comes to the same lines;
    fewer where they are more than `limit` tokens by now, at least one. `sizes`: how many each turn has. What
    arrived late is put where it belongs. A turn that was set aside is tried alone: it may be refused again.
    """
    ordered = sorted(covered, key=lambda turn: (turn.occurred_at, turn.turn_id))
    taken = Counter(turn.version for turn in ordered if not turn.set_aside)
    counts = iter([taken[version] for version in sorted(taken)])
    steps: list[list[str]] = []
    room, tokens, growing = 0, 0, False
    for turn in ordered:
        size = sizes[turn.turn_id]
        if turn.set_aside:
            steps.append([turn.turn_id])
            growing = False
            continue
        if room == 0:
            room, growing = next(counts), False
        if growing and tokens + size <= limit:
            steps[-1].append(turn.turn_id)
            tokens += size
        else:
            steps.append([turn.turn_id])
            tokens, growing = size, True
        room -= 1
    return steps


def in_lineage_order(sessions: Sequence[str], previous: Mapping[str, str | None]) -> list[str]:
    """The sessions, each behind those that it follows; else as they came. A circle is cut where it is met."""
    wanted = set(sessions)
    ordered: dict[str, None] = {}
    for session in sessions:
        chain = [before for before in reversed(ancestors(session, previous)) if before in wanted]
        ordered.update(dict.fromkeys((*chain, session)))
    return list(ordered)


def ancestors(session: str, previous: Mapping[str, str | None]) -> list[str]:
    """The sessions before this one, the nearest first."""
    found: list[str] = []
    while len(found) < BACK and (before := previous.get((found or [session])[-1])) is not None:
        if before == session or before in found:
            break
        found.append(before)
    return found
