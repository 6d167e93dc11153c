"""What the services need from the world, as Protocols. `lamina.testing` has an in-memory adapter for each.

Every method may raise `Transient` (try again) or `Permanent` (park); drivers' own errors never get out.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from lamina.api import ContextRequest, EntityView, EpisodeView, SearchRequest
from lamina.events import CompactionRequested, Payload
from lamina.forgetting import Tombstone, Tombstones
from lamina.model import EpisodeChunk, SessionKey, Statement, Summary, SummaryLine, Turn

Vector = list[float]
"""768 floats, length 1. A narrower model's vector is padded with zeros."""


class Clock(Protocol):
    """Tells the time, so that tests can."""

    def now(self) -> datetime:
        """The current moment, in UTC."""
        ...


# --- the buffer (Valkey) ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Appended:
    """What an append did."""

    duplicate: bool
    """The turn (or these of its events) had been appended before; nothing changed."""
    closed: Turn | None
    """The whole turn once it is closed, also when it was closed before; None while it grows."""


@dataclass(frozen=True)
class BufferView:
    """What the buffer holds of a session, at one moment."""

    known: bool
    """False when the buffer has never heard of the session, or has lost it."""
    turns: tuple[Turn, ...] = ()
    """Closed and growing turns, oldest first by (occurred_at, turn_id)."""
    open_turns: frozenset[str] = frozenset()
    """Ids of the turns that still grow; a summary never covers them."""
    summary: Summary | None = None
    """The cached summary, where there is one."""


@dataclass(frozen=True)
class BufferTrace:
    """What became of a turn in the buffer."""

    state: Literal["open", "closed", "trimmed"]
    """Still growing, whole, or let go of behind a summary."""
    published_at: datetime | None = None


class Buffer(Protocol):
    """The latest turns of each session, verbatim."""

    async def append(self, turn: Turn, *, first_event: int = 0, close: bool = True) -> Appended:
        """Append a turn's events atomically, and idempotently by turn id and event position.

        `turn.events` are the events from position `first_event` on, so that a turn can grow event by
        event. Positions already held are left alone; a gap is an InvalidEvent. A turn that was trimmed
        is never taken in again. Every key gets a TTL. Forgotten where a tombstone told to `entomb` hits it.
        """
        ...

    async def read(self, session: SessionKey, *, last: int | None = None) -> BufferView:
        """The session's turns (the last `last` of them) and cached summary, in one round trip."""
        ...

    async def trim(self, session: SessionKey, covered: Sequence[str], summary: Summary) -> bool:
        """Move the cache to `summary` and let go of exactly the `covered` turns, in one step.

        Compare-and-set on the summary's version: an older version than the cached one changes nothing
        and gives False. Trimming the same version again is harmless and gives True.
        """
        ...

    async def drop(self, session: SessionKey, turn_ids: Sequence[str], *, summary: bool = False) -> int:
        """Let go of these turns whatever their state, leaving nothing that keeps them from coming back.

        `summary`: also of the cached summary and of the memory of what was trimmed, so that the session can
        be summarised again from the log. Gives how many of the turns were held. Idempotent.
        """
        ...

    async def entomb(self, app: str, user_id: str, tombstones: Sequence[Tombstone]) -> None:
        """Refuse from now on the turns that these hit. The database's tombstones outlast them."""
        ...

    async def mark_published(self, session: SessionKey, turn_id: str) -> bool:
        """Remember when the turn's `turn.recorded` was first published; a turn that is not held gives False.

        Idempotent. The mark goes with the turn.
        """
        ...

    async def trace(self, session: SessionKey, turn_id: str) -> BufferTrace | None:
        """What the buffer knows of one turn, its content apart; None where it has never heard of it."""
        ...

    async def ping(self) -> None:
        """Raise DependencyUnavailable unless the buffer answers."""
        ...


# --- durable memory (AlloyDB) ----------------------------------------------------------------------


class SummaryStore(Protocol):
    """Rolling summaries, and which turns each version covers."""

    async def latest(
        self, session: SessionKey, previous_session_id: str | None, project_id: str | None
    ) -> Summary:
        """The highest version; where there is none yet, what the session inherits, as version 0.

        A session of project `project_id` inherits nothing about other projects.
        """
        ...

    async def covered(self, session: SessionKey, turn_ids: Sequence[str]) -> frozenset[str]:
        """Which of these turns a committed summary covers."""
        ...

    async def uncovered(self, session: SessionKey, *, beside: Sequence[str] = ()) -> Sequence[Turn]:
        """The logged turns that no summary covers yet, oldest first: what a lost buffer must get back.

        Without those named in `beside`, which the caller holds.
        """
        ...

    async def forgotten(self, turns: Sequence[Turn]) -> frozenset[str]:
        """Which of these turns, all of one user, are forgotten."""
        ...

    async def is_set_aside(self, session: SessionKey, turn_id: str) -> bool:
        """Whether the turn is covered by a summary whose lines go without it."""
        ...

    async def commit(
        self, summary: Summary, turns: Sequence[Turn], event_id: uuid.UUID, *, set_aside: Sequence[str] = ()
    ) -> Summary:
        """Store the version, the turns it covers (into the log too, where missing) and the event, in one
        transaction. Gives the version as stored: without what is forgotten.

        StaleVersion where the version exists, a turn is covered already, or something of the user was
        forgotten since the summary's generation. Forgotten where one of the turns is.
        `set_aside`: those of the turns that the lines go without. A later commit may cover them in earnest.
        """
        ...


@dataclass(frozen=True)
class Reconciled:
    """What absorbing statements changed."""

    changed: tuple[uuid.UUID, ...]
    """Entities that appeared, ended or gained a source. The same on every delivery of the event."""


class EntityStore(Protocol):
    """Statements, and the entities that follow from them."""

    async def known(self, turn: Turn, *, limit: int = 200) -> Sequence[EntityView]:
        """What holds now in the turn's scopes: what a model needs to reuse its subjects."""
        ...

    async def absorb(
        self, turn: Turn, statements: Sequence[Statement], extractor: str, event_id: uuid.UUID
    ) -> Reconciled:
        """Log the statements and derive their slots' entities again, with the event, in one transaction.

        An event absorbed before changes nothing and gives the same answer. Forgotten where the turn is; what
        it says about a forgotten slot is left out.
        """
        ...

    async def absorbed(self, turn: Turn, event_id: uuid.UUID) -> Reconciled | None:
        """What absorbing this event changed; None where it has not been absorbed. Saves a model call.

        Forgotten where the turn is.
        """
        ...

    async def unembedded(self, turn: Turn, entity_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Those of the turn's user's entities that have no vector yet, with the text to embed."""
        ...

    async def embed(self, turn: Turn, vectors: dict[uuid.UUID, Vector], model: str) -> None:
        """Store vectors of the turn's user's entities, with the model that made them. Idempotent."""
        ...


class EpisodeStore(Protocol):
    """The turn log, and the searchable episodes drawn from it."""

    async def record(self, turn: Turn, chunks: Sequence[EpisodeChunk], chunker: str = "") -> Sequence[int]:
        """Store the turn as it is and its chunks' text, searchable by word at once. Idempotent.

        `chunker`: what cut them, by name and version; stored with each.
        Gives the ordinals of the chunks that have no vector yet. Forgotten where the turn is.
        """
        ...

    async def embed(
        self, turn: Turn, vectors: dict[int, Vector], model: str, event_id: uuid.UUID | None
    ) -> None:
        """Store the chunks' vectors, and that the event is done, in one transaction. Idempotent.

        `event_id` None: more vectors follow, and a redelivery will ask only for those. Forgotten where the
        turn is.
        """
        ...

    async def turn(self, session: SessionKey, turn_id: str) -> Turn | None:
        """A turn from the log, equal to what was published."""
        ...


@dataclass(frozen=True)
class OldEpisode:
    """An episode chunk that compaction may cover."""

    episode_id: uuid.UUID
    session_id: str
    turn_id: str
    speaker: str
    text: str
    occurred_at: datetime


@dataclass(frozen=True)
class CompactionBatch:
    """Bounded work: the oldest whole turns of one user's project."""

    episodes: tuple[OldEpisode, ...]
    more: bool
    """Whether another batch waits behind this one."""


@dataclass(frozen=True)
class Consolidation:
    """What replaces a batch: lines, each with the turn it stands on."""

    lines: tuple[SummaryLine, ...]
    covers: tuple[uuid.UUID, ...]
    """The episodes that the lines stand for; exactly these are archived."""
    model: str


class CompactionStore(Protocol):
    """Plans, applies and undoes compaction."""

    async def plan(self, before: datetime) -> Sequence[CompactionRequested]:
        """Who has episodes from before this moment that no compaction has covered, not even one undone since.

        Keys only: no content crosses users.
        """
        ...

    async def batch(self, request: CompactionRequested, size: int) -> CompactionBatch:
        """The oldest such turns before the request's moment, whole, about `size` chunks."""
        ...

    async def apply(
        self, request: CompactionRequested, result: Consolidation, event_id: uuid.UUID
    ) -> uuid.UUID:
        """Store the consolidation with its links, archive what it covers, and the event, in one
        transaction. Gives the compaction's id; the same for an event applied before."""
        ...

    async def applied(self, request: CompactionRequested) -> uuid.UUID | None:
        """The compaction that this request led to; None where it has not been applied."""
        ...

    async def undo(self, app: str, user_id: str, compaction_id: uuid.UUID) -> int:
        """Bring the archived episodes back and retire the consolidation. Gives how many came back.

        It lasts: they are not planned again.
        """
        ...

    async def expire(self, now: datetime) -> dict[str, int]:
        """Delete what its retention setting allows; counts by table."""
        ...


@dataclass(frozen=True)
class Recalled:
    """What one read of AlloyDB gives."""

    summary: Summary | None = None
    """The session's own latest summary, else the one it inherits."""
    rules: tuple[EntityView, ...] = ()
    """Every rule and veto in scope, whatever the question."""
    entities: tuple[EntityView, ...] = ()
    episodes: tuple[EpisodeView, ...] = ()
    tail: tuple[Turn, ...] = ()
    """Latest turns that no summary covers and the caller does not hold, oldest first."""
    forgotten: Tombstones = field(default_factory=Tombstones)
    """What the user had forgotten: a buffer may not know it yet."""


class MemoryReader(Protocol):
    """Read-only recall: what the context service may do in the database, and all it may do."""

    async def recall(
        self,
        request: ContextRequest,
        vector: Vector | None,
        model: str,
        *,
        tail: int,
        seen: Sequence[str] = (),
    ) -> Recalled:
        """All that a context needs, in one round trip. `vector` None: by words alone.

        `seen`: turns of the session that the caller holds already; no episode comes from them.
        `tail`: how many of the session's latest turns to look at, beyond those, for some that no summary
        covers and the caller has lost.
        """
        ...

    async def search(self, request: SearchRequest, vector: Vector | None, model: str) -> Recalled:
        """Ranked entities and episodes."""
        ...

    async def turn(self, session: SessionKey, turn_id: str) -> Turn | None:
        """A turn from the log."""
        ...

    async def ping(self) -> None:
        """Raise DependencyUnavailable unless the database answers."""
        ...


# --- what became of a turn -------------------------------------------------------------------------


@dataclass(frozen=True)
class IndexedLetter:
    """That a subscription gave up on a turn, and why."""

    app: str
    user_id: str
    session_id: str
    """Empty where the turn did not say."""
    turn_id: str
    subscription: str
    error: str
    """The class of the error: what dead letters are grouped by."""
    reason: str
    failures: int
    """How often the subscription has given up on it."""
    service: str
    parked_at: datetime
    first_seen: datetime | None = None
    trace_id: str = ""
    event_id: str = ""
    project_id: str = field(default="", compare=False)
    """Not kept: tells whether the turn is forgotten, as the next one does."""
    occurred_at: datetime | None = field(default=None, compare=False)


class DeadLetterIndex(Protocol):
    """An index of the dead letters that name a turn. The queue is the truth."""

    async def record(self, letter: IndexedLetter) -> None:
        """Remember the letter, unless a later one of its turn and subscription is known. Idempotent.

        Forgotten where the user had the turn forgotten.
        """
        ...


@dataclass(frozen=True)
class Evidence:
    """What durable memory says of one turn."""

    recorded_at: datetime | None = None
    """When the log got it."""
    summary_version: int | None = None
    """The version that covers it."""
    summarised_at: datetime | None = None
    set_aside: bool = False
    """Whether that version's lines go without it."""
    processed: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """When each consumer was done with the turn's event."""
    statements: int = 0
    chunks: int = 0
    vectors: int = 0
    """How many of the chunks have one."""
    indexed_at: datetime | None = None
    """When the chunks' words could be found."""
    letters: tuple[IndexedLetter, ...] = ()


class ReceiptReader(Protocol):
    """Read-only: where a turn has left traces, for its own user."""

    async def sessions_of(self, app: str, user_id: str, turn_id: str) -> Sequence[str]:
        """The sessions in which durable memory knows a turn of this id; '' for a letter that names none."""
        ...

    async def evidence(self, session: SessionKey, turn_id: str) -> Evidence:
        """All that is known of the turn; empty where nothing is."""
        ...


# --- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """A Pub/Sub message as it travels: bytes and string attributes."""

    data: bytes
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    ordering_key: str = ""


class Publisher(Protocol):
    """Puts messages on topics; returns only once the broker has them."""

    async def publish(self, payload: Payload) -> str:
        """Publish to the payload's topic. Gives the message id. TooLarge before anything is sent."""
        ...

    async def ping(self) -> None:
        """Raise DependencyUnavailable unless the broker answers."""
        ...

    async def park(self, subscription: str, message: Message) -> str:
        """Put the message, made by `lamina.dead_letters.parked`, on the subscription's dead-letter topic."""
        ...


# --- models ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Consolidated:
    """A model's account of old episodes."""

    lines: tuple[SummaryLine, ...]


class LanguageModel(Protocol):
    """Everything Lamina asks of a language model. `name` holds the model and the prompts' version."""

    name: str

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        """The lines of `previous` and the turns, compressed to about `budget` tokens.

        Rules and vetoes come through word for word. What tools returned is data, quoted at most.
        """
        ...

    async def extract(self, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
        """What the turn says that is worth remembering, times and sessions made explicit."""
        ...

    async def consolidate(self, episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
        """Old episodes in about `budget` tokens, each line naming the turn it stands on."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors. `name` is stored with each: vectors of two models are never compared."""

    name: str

    async def warm(self) -> None:
        """Load what the first call would otherwise wait for. Costs no call of a remote model."""
        ...

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text."""
        ...

    async def query(self, text: str) -> Vector:
        """The vector of a question."""
        ...


class TokenCounter(Protocol):
    """Counts tokens, exactly or by estimate."""

    def count(self, text: str) -> int:
        """How many tokens the text is."""
        ...


JsonObject = dict[str, Any]
