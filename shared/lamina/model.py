"""What memory is made of: turns and their events, summaries, statements, entities and episodes.

Everything here is immutable and knows nothing of where it is stored.
"""

import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self, cast

from annotated_types import Ge, Lt
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from lamina import strict_json
from lamina.event import Event, Speaker
from lamina.strict_json import check_json
from lamina.text import Text

LAMINA_NAMESPACE = uuid.UUID("6f1f2c56-5d0c-5c0e-9a55-6c616d696e61")
"""Namespace of every derived (version 5) identifier, so that ids are the same on every delivery."""

MAX_IDENTIFIER_BYTES = 256
"""In UTF-8. Five names fit into one key of an index, which holds 2,700 bytes."""


def _short_enough(name: str) -> str:
    if (size := len(name.encode("utf-8"))) > MAX_IDENTIFIER_BYTES:
        raise ValueError(f"is {size} bytes in UTF-8; at most {MAX_IDENTIFIER_BYTES} are allowed")
    return name


Identifier = Annotated[
    str,
    StringConstraints(min_length=1, max_length=256, pattern=r"^[^\u0000-\u001f\u007f]+$"),
    AfterValidator(_short_enough),
]
"""A caller-chosen name: 1 to 256 bytes of UTF-8 in any language, no control characters."""


def _is_written_out(value: Any) -> Any:
    """A bare number could be seconds or milliseconds, and a guess would put the turn into another year."""
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE.match(value)):
        return value
    raise ValueError("is a time with a zone as in RFC 3339, such as 2026-01-05T10:00:00Z")


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")

Moment = Annotated[
    AwareDatetime,
    Ge(datetime(1900, 1, 1, tzinfo=UTC)),
    Lt(datetime(9000, 1, 1, tzinfo=UTC)),
    BeforeValidator(_is_written_out),
]
"""A time with a zone, in years that every store and every clock can hold."""


class Frozen(BaseModel):
    """Base of the value objects: immutable, and strict about fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SessionKey(Frozen):
    """A session's identity. `session_id` is unique only inside its app and user."""

    app: Identifier
    user_id: Identifier
    session_id: Identifier

    @property
    def digest(self) -> str:
        """32 hex characters that stand for the session where names are not safe: keys, headers, logs."""
        return derived_id("session", self.app, self.user_id, self.session_id).hex


class Turn(BaseModel):
    """One exchange: the user's message and all that the agent did until it answered.

    Unknown fields are kept. Events keep their exact JSON value.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    app: Identifier
    user_id: Identifier
    session_id: Identifier
    turn_id: Identifier
    """Chosen by the publisher (UUIDv7 recommended); the idempotency key everywhere."""
    occurred_at: Moment
    """When the exchange began. Turns of a session are ordered by (occurred_at, turn_id)."""
    project_id: Identifier | None = None
    previous_session_id: Identifier | None = None
    events: Annotated[tuple[Event, ...], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _accept_short_form(cls, value: Any) -> Any:
        """Turn `{"user": "...", "assistant": "..."}` into the two events it stands for."""
        if not isinstance(value, Mapping) or "events" in value:
            return cast(Any, value)
        fields = dict(cast(Mapping[str, Any], value))
        events: list[Event] = []
        for name, author, role in (("user", "user", "user"), ("assistant", "agent", "model")):
            text = fields.pop(name, None)
            if isinstance(text, str):
                events.append(Event.of_text(author, role, text))
            elif text is not None:
                raise ValueError(f"{name}: must be a string; other content goes into `events`")
        return {**fields, "events": events} if events else cast(Any, value)

    @model_validator(mode="after")
    def _unknown_fields_are_json(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            try:
                check_json(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return self

    @property
    def session(self) -> SessionKey:
        """The session this turn belongs to."""
        return SessionKey(app=self.app, user_id=self.user_id, session_id=self.session_id)

    @property
    def order(self) -> tuple[datetime, str]:
        """Sorts the turns of a session, whatever order they arrived in."""
        return (self.occurred_at, self.turn_id)

    def header(self) -> dict[str, Any]:
        """Every field but the events, as JSON values; an unknown field stays even where it is null."""
        fields = type(self).model_fields.keys() - {"events"}
        known = self.model_dump(mode="json", include=fields, exclude_none=True)
        return {**known, **(self.model_extra or {})}

    def to_json(self) -> dict[str, Any]:
        """The turn as a JSON value; `Turn.model_validate` of it gives an equal turn."""
        return {**self.header(), "events": [event.root for event in self.events]}

    def encode(self) -> bytes:
        """The turn as ASCII JSON text. Escaping keeps NUL and lone surrogates through every store."""
        return strict_json.dumps(self.to_json())


class Scope(StrEnum):
    """Where a statement holds."""

    GLOBAL = "global"
    PROJECT = "project"
    SESSION = "session"


class Kind(StrEnum):
    """What a statement is. Rules and vetoes are pinned: every context in scope carries them."""

    PREFERENCE = "preference"
    RULE = "rule"
    VETO = "veto"
    DECISION = "decision"
    FACT = "fact"

    @property
    def pinned(self) -> bool:
        """Whether summaries keep it verbatim and contexts always show it."""
        return self in (Kind.RULE, Kind.VETO)


class Statement(Frozen):
    """One thing somebody said that is worth remembering: immutable, and never forgotten when superseded.

    `subject` names the slot it fills ("ui theme"): inside one scope a later statement about the same
    subject supersedes the earlier one.
    """

    scope: Scope
    project_id: Identifier | None = None
    kind: Kind
    subject: Annotated[Text, StringConstraints(min_length=1, max_length=200)]
    text: Annotated[Text, StringConstraints(min_length=1, max_length=4000)]
    said_by: Speaker
    session_id: Identifier
    turn_id: Identifier
    ordinal: Annotated[int, Field(ge=0)]
    """Position among the statements of its turn."""
    said_at: AwareDatetime
    language: str = "und"
    """ISO 639-1 code of the text, `und` where it cannot be told."""

    @model_validator(mode="after")
    def _project_scope_names_its_project(self) -> Self:
        if (self.scope is Scope.PROJECT) != (self.project_id is not None):
            raise ValueError("project_id goes with scope 'project', and only with it")
        return self

    @property
    def order(self) -> tuple[datetime, str, int]:
        """Sorts statements by when they were said, never by when they arrived."""
        return (self.said_at, self.turn_id, self.ordinal)

    @property
    def slot(self) -> tuple[str, str, str]:
        """(scope, owner of the scope, subject): statements in one slot supersede one another."""
        owner = {Scope.GLOBAL: "", Scope.PROJECT: self.project_id or "", Scope.SESSION: self.session_id}
        return (self.scope.value, owner[self.scope], self.subject)


class Entity(Frozen):
    """What holds, or once held, in a slot: a run of statements that agree, with its validity."""

    entity_id: uuid.UUID
    statement: Statement
    """The first statement of the run, as it was said."""
    valid_from: AwareDatetime
    valid_to: AwareDatetime | None = None
    superseded_by: uuid.UUID | None = None
    sources: tuple[Identifier, ...]
    """The turns that said so, oldest first."""
    last_said_at: AwareDatetime
    """When the last of them did."""


class SummaryLine(Frozen):
    """One line of a summary, with the turn it came from."""

    kind: Annotated[str, StringConstraints(pattern=r"^(rule|veto|preference|decision|goal|fact|digest)$")]
    text: Annotated[Text, StringConstraints(min_length=1)]
    turn_id: Identifier
    project_id: Identifier | None = None
    """The project it is about; None for what holds everywhere. Other projects' sessions do not inherit it."""
    ordinal: int = 0
    at: AwareDatetime
    subject: str = ""
    """The slot the line fills, with its scope; empty where it fills none."""
    superseded_at: AwareDatetime | None = None
    """When a later line filled the same slot: the line is history from then on."""

    @property
    def pinned(self) -> bool:
        """Whether the line must survive every later summary word for word."""
        return self.kind in ("rule", "veto")


class Summary(Frozen):
    """The rolling summary of a session. Versions are never overwritten; the highest is current."""

    session: SessionKey
    version: Annotated[int, Field(ge=0)]
    """0 is the empty summary that every session starts with, or what it inherited."""
    lines: tuple[SummaryLine, ...] = ()
    model: str = ""
    """The model and prompt version that wrote it."""
    generation: int = 0
    """How many times the user had something forgotten when it was read; see `lamina.forgetting`."""

    @property
    def current(self) -> tuple[SummaryLine, ...]:
        """The lines that still hold."""
        return tuple(line for line in self.lines if line.superseded_at is None)

    def about(self, project_id: str | None) -> "Summary":
        """Without the lines about other projects: what a session of `project_id` may see of it."""
        lines = tuple(line for line in self.lines if line.project_id in (None, project_id))
        return self.model_copy(update={"lines": lines})

    def inherited_by(self, session: SessionKey, project_id: str | None) -> "Summary":
        """What a following session starts from."""
        return self.about(project_id).model_copy(update={"session": session, "version": 0})

    def render(self) -> str:
        """The summary as text, a line each that still holds; empty where nothing is covered yet."""
        return "\n".join(f"- [{line.at:%Y-%m-%d}] {line.text}" for line in self.current)


class EpisodeChunk(Frozen):
    """A searchable piece of one turn: a message, or a window of a long tool output."""

    ordinal: Annotated[int, Field(ge=0)]
    speaker: Speaker
    text: Annotated[Text, StringConstraints(min_length=1)]
    """Begins with the date and the speaker, which retrieval needs (see docs/decisions.md)."""
    language: str = "und"
    handle: str = ""
    """Fetches the part in full; see `lamina.handles`."""


def derived_id(kind: str, *parts: str) -> uuid.UUID:
    """An id that any delivery of the same thing derives again: a UUIDv5 over length-prefixed parts."""
    return uuid.uuid5(LAMINA_NAMESPACE, kind + "".join(f"|{len(part)}:{part}" for part in parts))


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
