"""Statements and entities in this process, under the same contract as those on AlloyDB."""

import uuid
from collections.abc import Sequence
from datetime import datetime

from lamina.api import EntityView
from lamina.errors import ConstraintViolated
from lamina.event import Speaker
from lamina.model import Entity, Scope, Statement, Turn
from lamina.ports import Reconciled, Vector
from lamina.reconcile import entities_of
from lamina.testing.tombstones import InMemoryTombstones

User = tuple[str, str]


class InMemoryEntities:
    """Implements `lamina.ports.EntityStore`."""

    def __init__(self, tombstones: InMemoryTombstones | None = None) -> None:
        self.tombstones = tombstones or InMemoryTombstones()
        self.statements: dict[User, dict[tuple[str, str, int], Statement]] = {}
        """By (session, turn, ordinal)."""
        self.vectors: dict[uuid.UUID, tuple[str, Vector]] = {}
        """Model and vector, by entity."""
        self._results: dict[tuple[User, uuid.UUID], Reconciled] = {}

    def entities(self, app: str, user_id: str) -> tuple[Entity, ...]:
        """All that holds or once held of the user, slot by slot and oldest first."""
        return entities_of(app, user_id, self.statements.get((app, user_id), {}).values())

    async def known(self, turn: Turn, *, limit: int = 200) -> Sequence[EntityView]:
        """See `EntityStore.known`."""
        in_scope = {
            (Scope.GLOBAL.value, ""),
            (Scope.PROJECT.value, turn.project_id or ""),
            (Scope.SESSION.value, turn.session_id),
        }
        held = [
            entity
            for entity in self.entities(turn.app, turn.user_id)
            if entity.valid_to is None and entity.statement.slot[:2] in in_scope
        ]
        held.sort(key=lambda entity: entity.entity_id)
        held.sort(key=lambda entity: entity.last_said_at, reverse=True)
        return [EntityView.of(entity) for entity in held[:limit]]

    async def absorb(
        self, turn: Turn, statements: Sequence[Statement], extractor: str, event_id: uuid.UUID
    ) -> Reconciled:
        """See `EntityStore.absorb`."""
        del extractor  # kept for the record only
        user = (turn.app, turn.user_id)
        tombstones = self.tombstones.of(*user)
        tombstones.refuse(turn)
        if done := self._results.get((user, event_id)):
            return done
        if any(said.said_by is Speaker.TOOL for said in statements):
            raise ConstraintViolated("what a tool returned never becomes a statement")
        before = {entity.entity_id: entity for entity in self.entities(*user)}
        log = self.statements.setdefault(user, {})
        if not any(key[:2] == (turn.session_id, turn.turn_id) for key in log):
            for said in tombstones.kept_statements(statements):
                log.setdefault((said.session_id, said.turn_id, said.ordinal), said)
        after = self.entities(*user)
        changed = [entity.entity_id for entity in after if before.get(entity.entity_id) != entity]
        for gone in before.keys() - {entity.entity_id for entity in after}:
            self.vectors.pop(gone, None)
        return self._results.setdefault((user, event_id), Reconciled(tuple(changed)))

    async def absorbed(self, turn: Turn, event_id: uuid.UUID) -> Reconciled | None:
        """See `EntityStore.absorbed`."""
        self.tombstones.of(turn.app, turn.user_id).refuse(turn)
        return self._results.get(((turn.app, turn.user_id), event_id))

    async def unembedded(self, turn: Turn, entity_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
        """See `EntityStore.unembedded`."""
        return {
            entity.entity_id: f"{entity.statement.subject}: {entity.statement.text}"
            for entity in self._owned(turn)
            if entity.entity_id in entity_ids and entity.entity_id not in self.vectors
        }

    async def embed(self, turn: Turn, vectors: dict[uuid.UUID, Vector], model: str) -> None:
        """See `EntityStore.embed`."""
        owned = {entity.entity_id for entity in self._owned(turn)}
        fresh = (owned & vectors.keys()) - self.vectors.keys()
        self.vectors.update({key: (model, vectors[key]) for key in fresh})

    def expire_sessions(self, before: datetime) -> tuple[int, int]:
        """Delete session-scoped slots last spoken of before this moment; counts statements and entities."""
        statements = entities = 0
        for user, log in self.statements.items():
            held = self.entities(*user)
            alive = {entity.statement.slot for entity in held if entity.last_said_at >= before}
            gone = [
                key for key, said in log.items() if said.scope is Scope.SESSION and said.slot not in alive
            ]
            for key in gone:
                del log[key]
            statements += len(gone)
            entities += len(held) - len(self.entities(*user))
        return statements, entities

    def _owned(self, turn: Turn) -> list[Entity]:
        return sorted(self.entities(turn.app, turn.user_id), key=lambda entity: entity.entity_id)
