"""What a rebuild would change. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lamina.model import Entity, SummaryLine


@dataclass(frozen=True)
class Change:
    """One thing that is not as before."""

    how: Literal["added", "removed", "changed"]
    where: str
    """The scope and subject of an entity; else the session."""
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Refusal:
    """A turn or a session that the model would not do: what is in memory of it stays."""

    session_id: str
    turn_id: str
    """Empty: the session as a whole."""
    reason: str


@dataclass(frozen=True)
class Difference:
    """The memory in use against the one that was made."""

    counts: dict[str, int]
    changes: tuple[Change, ...] = ()
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = field(default=())


def of_entities(before: Iterable[Entity], after: Iterable[Entity]) -> tuple[Change, ...]:
    """What holds now, slot by slot; `changed` is another text or kind in the same slot."""
    old, new = _current(before), _current(after)
    changes: list[Change] = []
    for slot in sorted(old.keys() | new.keys()):
        was, will = old.get(slot, ""), new.get(slot, "")
        if was != will:
            how = "changed" if was and will else "added" if will else "removed"
            scope, owner, subject = slot
            where = f"{scope} {owner}".strip()
            changes.append(Change(how, f"{where}: {subject}", was, will))
    return tuple(changes)


def _current(entities: Iterable[Entity]) -> dict[tuple[str, str, str], str]:
    return {
        entity.statement.slot: f"{entity.statement.kind.value}: {entity.statement.text}"
        for entity in entities
        if entity.valid_to is None
    }


def of_lines(
    session_id: str, before: Sequence[SummaryLine], after: Sequence[SummaryLine]
) -> tuple[Change, ...]:
    """The lines of a session's summary that went, then those that came."""
    old, new = _lines(before), _lines(after)
    return (
        *(Change("removed", session_id, before=line) for line in old if line not in new),
        *(Change("added", session_id, after=line) for line in new if line not in old),
    )


def _lines(lines: Sequence[SummaryLine]) -> Mapping[str, None]:
    return dict.fromkeys(f"{line.kind}: {line.text}" for line in lines if line.superseded_at is None)


def counted(changes: Iterable[Change]) -> dict[str, int]:
    """How many of each kind."""
    totals = {"added": 0, "removed": 0, "changed": 0}
    for change in changes:
        totals[change.how] += 1
    return totals
