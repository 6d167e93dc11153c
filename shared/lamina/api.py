"""Requests and answers of the HTTP functions. The OpenAPI document is generated from these."""

import uuid
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from lamina.event import Speaker
from lamina.model import Entity, Identifier, Kind, Moment, Scope

Query = Annotated[str, StringConstraints(max_length=20_000)]


def _is_a_number(value: object) -> object:
    """Else `"8"` and `true` would pass for numbers."""
    if isinstance(value, bool | str):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic collects ValueErrors
    return value


_COUNTED = BeforeValidator(_is_a_number)


class Request(BaseModel):
    """Base of what callers send: unknown fields are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Answer(BaseModel):
    """Base of what callers get: fields may be added in later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ContextRequest(Request):
    """What should the agent remember right now?"""

    app: Identifier
    user_id: Identifier
    session_id: Identifier
    project_id: Identifier | None = None
    previous_session_id: Identifier | None = None
    """Carries the summary of that session over while this one has none of its own."""
    query: Query = ""
    """What the user just said. Empty: no episodes are searched for."""
    token_budget: Annotated[int, Field(ge=200, le=1_000_000), _COUNTED] = 4_000
    max_entities: Annotated[int, Field(ge=0, le=200), _COUNTED] = 20
    max_episodes: Annotated[int, Field(ge=0, le=200), _COUNTED] = 8
    deadline_ms: Annotated[int, Field(ge=50, le=60_000), _COUNTED] = 2_000


class EntityView(Answer):
    """A statement that holds (or held), as readers see it."""

    entity_id: uuid.UUID
    scope: Scope
    project_id: str | None = None
    session_id: str | None = None
    kind: Kind
    subject: str
    text: str
    said_by: Speaker
    turn_id: str
    said_at: AwareDatetime
    valid_to: AwareDatetime | None = None
    score: float = 0.0

    @classmethod
    def of(cls, entity: Entity) -> Self:
        """The entity as readers see it."""
        said = entity.statement
        return cls(
            entity_id=entity.entity_id,
            scope=said.scope,
            project_id=said.project_id,
            session_id=said.session_id,
            kind=said.kind,
            subject=said.subject,
            text=said.text,
            said_by=said.said_by,
            turn_id=said.turn_id,
            said_at=said.said_at,
            valid_to=entity.valid_to,
        )


class EpisodeView(Answer):
    """A piece of a past turn."""

    session_id: str
    project_id: str | None = None
    turn_id: str
    ordinal: int
    speaker: Speaker
    text: str
    occurred_at: AwareDatetime
    handle: str = ""
    score: float = 0.0


class TurnView(Answer):
    """A recent turn, its events as they were; a long tool output is cut short and named in `elided`."""

    turn_id: str
    occurred_at: AwareDatetime
    events: tuple[dict[str, Any], ...]
    elided: tuple[str, ...] = ()
    """Handles of the parts whose text was cut."""


class SummaryView(Answer):
    """The summary that applies, and whose it is."""

    session_id: str
    version: int
    text: str


Section = Literal["rules", "summary", "entities", "episodes", "recent"]


class ContextResponse(Answer):
    """The memory for one prompt, in parts and rendered."""

    summary: SummaryView | None
    recent: tuple[TurnView, ...]
    entities: tuple[EntityView, ...]
    episodes: tuple[EpisodeView, ...]
    prompt: str
    """The block to put into the prompt, fenced so that Lamina never learns from it again."""
    tokens: dict[str, int]
    """Tokens by section, and `total`."""
    timings_ms: dict[str, float]
    degraded: tuple[str, ...] = ()
    """What is missing because a part was down or late: `buffer`, `memory`, `vectors`."""


class SearchRequest(Request):
    """Search the long-term memory of one user."""

    app: Identifier
    user_id: Identifier
    query: Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
    k: Annotated[int, Field(ge=1, le=200), _COUNTED] = 10
    scope: Scope | None = None
    project_id: Identifier | None = None
    session_id: Identifier | None = None
    as_of: Moment | None = None
    """Only what was said, and held, at that moment."""
    include: tuple[Literal["entities", "episodes"], ...] = ("entities", "episodes")


class SearchResponse(Answer):
    """The hits, best first, by kind of memory."""

    entities: tuple[EntityView, ...]
    episodes: tuple[EpisodeView, ...]
    timings_ms: dict[str, float]
    degraded: tuple[str, ...] = ()


class FetchRequest(Request):
    """Fetch in full what a context cut short."""

    app: Identifier
    user_id: Identifier
    handle: Annotated[
        str,
        StringConstraints(min_length=1, max_length=2_000),
        Field(json_schema_extra={"pattern": "^lamina:[^/]*/[^/]*/[0-9]{1,6}/[0-9]{1,6}$"}),
    ]


class FetchResponse(Answer):
    """The part, as it was sent."""

    handle: str
    part: dict[str, Any]


class ReceiptRequest(Request):
    """What became of one turn?"""

    app: Identifier
    user_id: Identifier
    turn_id: Identifier
    session_id: Identifier | None = None
    """Needed as long as only the buffer has the turn."""
    deadline_ms: Annotated[int, Field(ge=50, le=60_000)] = 2_000


StageName = Literal[
    "accepted",
    "published",
    "summarised",
    "extracted",
    "embedded",
    "searchable by words",
    "searchable by vector",
]
StageState = Literal["done", "waiting", "set aside", "parked", "unknown"]


class ParkedView(Answer):
    """A dead letter of the turn that no success has outdated."""

    subscription: str
    error: str
    """The error's class: what dead letters are grouped by."""
    reason: str
    failures: int
    """How often the subscription has given up on the turn."""
    service: str
    first_seen: AwareDatetime | None = None
    parked_at: AwareDatetime
    trace_id: str = ""


class StageView(Answer):
    """How far one stage has got with the turn."""

    stage: StageName
    state: StageState
    """`unknown`: what could tell is down, or has forgotten. `set aside`: the summary goes without it."""
    at: AwareDatetime | None = None
    """The earliest trace of its being done; for a parked one, when it was parked."""
    version: int | None = None
    """Of the summary that covers the turn."""
    count: int | None = None
    """Statements extracted, or pieces to search."""
    note: str = ""


class Receipt(Answer):
    """What became of a turn, stage by stage, in the order in which it travels."""

    session_id: str
    """Empty where the turn did not say one that can be used."""
    turn_id: str
    stages: tuple[StageView, ...]
    parked: tuple[ParkedView, ...] = ()
    """The first parked first. The index is told of a dead letter a moment after it is parked."""
    degraded: tuple[str, ...] = ()
    """What was down or late, so that stages may be unknown: `buffer`, `memory`."""


class TurnAccepted(Answer):
    """The turn is in the buffer and its `turn.recorded` is published."""

    turn_id: str
    duplicate: bool
    """Whether it had been accepted before; accepting it again changed nothing."""


class Problem(Answer):
    """Why a request was refused (RFC 9457)."""

    title: str
    status: int
    problems: tuple[str, ...] = ()
