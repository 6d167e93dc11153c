"""From what was said to what holds: a pure function of the set of statements.

The order in which statements arrive, and how often, makes no difference, so every delivery of every event
ends in the same entities.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby, pairwise
from uuid import UUID

from lamina.model import Entity, Kind, Statement, derived_id

Slot = tuple[str, str, str]
Run = list[Statement]

_BRACKETS_AND_QUOTES = re.compile(
    r"[()\[\]{}\"“”„«»¿¡「」『』《》（），。、；：！？]|(?<!\w)['’‘]|['’‘](?!\w)"
)
_CLOSING_MARKS = re.compile(r"[.,;:!?…]+(?=\s|$)")


def normalised(text: str) -> str:
    """What two texts have in common when they say the same: case, spacing and punctuation are ignored.

    Marks inside a word stay ("3.11", "C#", "don't"): they tell things apart.
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    bare = _CLOSING_MARKS.sub(" ", _BRACKETS_AND_QUOTES.sub(" ", folded))
    return " ".join(bare.split())


def entities_of(app: str, user_id: str, statements: Iterable[Statement]) -> tuple[Entity, ...]:
    """The entities that follow from one user's statements: each slot's runs, oldest first.

    Consecutive statements of a slot that agree are one run, said by several turns. Where the next one
    differs, it ends the run: valid_to is its moment and superseded_by its entity.
    """
    ordered = sorted(set(statements), key=lambda said: (said.slot, *order_of(said)))
    return tuple(
        entity
        for _, in_slot in groupby(ordered, key=lambda said: said.slot)
        for entity in _entities_in_slot(app, user_id, list(in_slot))
    )


def order_of(said: Statement) -> tuple[datetime, str, int, str]:
    """As `Statement.order`; turn ids are unique only inside a session, so that its name settles a tie."""
    return (*said.order, said.session_id)


def _entities_in_slot(app: str, user_id: str, statements: Run) -> Iterator[Entity]:
    runs = [list(run) for _, run in groupby(statements, key=meaning_of)]
    ends: list[Run | None] = [following for _, following in pairwise(runs)]
    for run, following in zip(runs, [*ends, None], strict=True):
        yield Entity(
            entity_id=_entity_id(app, user_id, run[0]),
            statement=run[0],
            valid_from=run[0].said_at,
            valid_to=following[0].said_at if following else None,
            superseded_by=_entity_id(app, user_id, following[0]) if following else None,
            sources=tuple(turn_id for _, turn_id in dict.fromkeys((s.session_id, s.turn_id) for s in run)),
            last_said_at=run[-1].said_at,
        )


def meaning_of(said: Statement) -> tuple[Kind, str]:
    """The kind counts: a preference that has become a rule is pinned from then on."""
    return (said.kind, normalised(said.text))


def _entity_id(app: str, user_id: str, first: Statement) -> UUID:
    return derived_id(
        "entity", app, user_id, *first.slot, first.session_id, first.turn_id, str(first.ordinal)
    )
