"""What holds at a point of a replay: what the model was shown when the turn was new. Pure."""

from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import takewhile

from lamina.api import EntityView
from lamina.model import Entity, Scope, Statement, Turn
from lamina.reconcile import entities_of, meaning_of, order_of

Slot = tuple[str, str, str]


class Known:
    """One user's statements so far. Only the end of a slot that a turn touches is derived again."""

    def __init__(self, app: str, user_id: str) -> None:
        self._user = (app, user_id)
        self._said: dict[Slot, list[Statement]] = {}
        self._current: dict[Slot, Entity] = {}

    def learn(self, statements: Iterable[Statement]) -> None:
        """Take in what was said, in any order."""
        touched: set[Slot] = set()
        for said in statements:
            insort(self._said.setdefault(said.slot, []), said, key=order_of)
            touched.add(said.slot)
        for slot in touched:
            self._current[slot] = entities_of(*self._user, _last_run(self._said[slot]))[-1]

    def before(self, turn: Turn, limit: int = 200) -> list[EntityView]:
        """What holds in the turn's scopes, the latest said first: as `EntityStore.known` gives it."""
        owners = {
            (Scope.GLOBAL.value, ""),
            (Scope.PROJECT.value, turn.project_id),
            (Scope.SESSION.value, turn.session_id),
        }
        within = [entity for slot, entity in self._current.items() if slot[:2] in owners]
        within.sort(key=lambda entity: entity.entity_id)
        within.sort(key=lambda entity: entity.last_said_at, reverse=True)
        return [EntityView.of(entity) for entity in within[:limit]]


def _last_run(ordered: Sequence[Statement]) -> list[Statement]:
    """What was said last in a slot, by all who said so in a row: no more of it says what holds."""
    meaning = meaning_of(ordered[-1])
    return list(takewhile(lambda said: meaning_of(said) == meaning, reversed(ordered)))
