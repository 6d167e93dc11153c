"""The payloads of the topics: versioned type names, and one registry that knows them all."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from lamina.model import Identifier, Moment, SessionKey, Turn, derived_id


class Payload(BaseModel, ABC):
    """What a message carries. Fields of a newer publisher are ignored: consumers are upgraded last."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: ClassVar[str]
    topic: ClassVar[str]

    @abstractmethod
    def event_id(self) -> uuid.UUID:
        """The CloudEvent's id: derived from the content, so that every delivery carries the same one."""

    @abstractmethod
    def ordering_key(self) -> str:
        """Messages of one key concern the same session or the same user's project."""

    def to_json(self) -> dict[str, Any]:
        """The payload as a JSON value."""
        return self.model_dump(mode="json", exclude_none=True)


class TurnPayload(Payload):
    """A payload that is about one turn, and carries it whole."""

    turn: Turn

    def event_id(self) -> uuid.UUID:
        """One id for each turn, unique over apps, users and sessions."""
        return self.id_of(self.turn.session, self.turn.turn_id)

    @classmethod
    def id_of(cls, session: SessionKey, turn_id: str) -> uuid.UUID:
        """The id of the event about this turn."""
        return derived_id(cls.type, session.app, session.user_id, session.session_id, turn_id)

    def ordering_key(self) -> str:
        """The session."""
        return self.turn.session.digest

    def to_json(self) -> dict[str, Any]:
        """The turn keeps its exact JSON value."""
        return {"turn": self.turn.to_json()}


class TurnPublished(TurnPayload):
    """An agent says what happened in a turn."""

    type: ClassVar[str] = "lamina.turn.published.v1"
    topic: ClassVar[str] = "turns"


class TurnRecorded(TurnPayload):
    """A turn is in the buffer. It carries the whole turn, so that no subscriber depends on Valkey."""

    type: ClassVar[str] = "lamina.turn.recorded.v1"
    topic: ClassVar[str] = "turn.recorded"


class CompactionDue(Payload):
    """The scheduler's tick: look for memory old enough to compact."""

    type: ClassVar[str] = "lamina.compaction.due.v1"
    topic: ClassVar[str] = "compaction.due"

    due_at: Moment
    """A scheduler that cannot tell the time leaves it out: the message's publish time stands in."""

    def event_id(self) -> uuid.UUID:
        """One id for each tick."""
        return derived_id(self.type, self.due_at.isoformat())

    def ordering_key(self) -> str:
        """All ticks."""
        return "tick"


class CompactionRequested(Payload):
    """Compact what one user has in one project (or in none) from before a moment."""

    type: ClassVar[str] = "lamina.compaction.requested.v1"
    topic: ClassVar[str] = "compaction.requested"

    app: Identifier
    user_id: Identifier
    project_id: Identifier | None = None
    before: Moment
    batch: Annotated[int, Field(ge=0)] = 0
    """Which round of the same request this is: work is bounded, a full batch asks for the next one."""

    def event_id(self) -> uuid.UUID:
        """One id for each user, project, moment and round."""
        return derived_id(
            self.type, self.app, self.user_id, self.project_id or "", self.before.isoformat(), str(self.batch)
        )

    def ordering_key(self) -> str:
        """The user's project."""
        return derived_id("project", self.app, self.user_id, self.project_id or "").hex


Stage = Literal["summary", "entities", "episodes", "compaction"]


class MemoryChanged(Payload):
    """A committed change of memory. Ids only: whoever wants the content reads it, with its own rights."""

    type: ClassVar[str] = "lamina.memory.changed.v1"
    topic: ClassVar[str] = "memory.changed"

    app: Identifier
    user_id: Identifier
    session_id: Identifier | None = None
    project_id: Identifier | None = None
    stage: Stage
    caused_by: uuid.UUID
    """The id of the event whose processing made the change."""
    changed: tuple[str, ...] = ()
    """Ids of the rows: entity ids, `session:version` of a summary, turn ids of episodes."""

    @classmethod
    def because_of(cls, event: "TurnRecorded", stage: Stage, changed: Iterable[str]) -> Self:
        """What processing a recorded turn changed."""
        turn = event.turn
        return cls(
            app=turn.app,
            user_id=turn.user_id,
            session_id=turn.session_id,
            project_id=turn.project_id,
            stage=stage,
            caused_by=event.event_id(),
            changed=tuple(changed),
        )

    def event_id(self) -> uuid.UUID:
        """One id for each cause, stage and what changed: one cause may bring about two summaries."""
        return derived_id(self.type, self.stage, str(self.caused_by), *self.changed)

    def ordering_key(self) -> str:
        """The user."""
        return derived_id("user", self.app, self.user_id).hex


PAYLOADS: dict[str, type[Payload]] = {
    payload.type: payload
    for payload in (TurnPublished, TurnRecorded, CompactionDue, CompactionRequested, MemoryChanged)
}
"""Every payload by its CloudEvents type."""
