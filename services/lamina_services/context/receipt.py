"""What a turn's traces say of how far it has got. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lamina.api import ParkedView, Receipt, StageName, StageView
from lamina.ports import BufferTrace, Evidence, IndexedLetter

INGEST, SUMMARIZER, EXTRACTOR, EMBEDDER = "turn-ingest", "summarizer", "entity-extractor", "episodic-embedder"
"""The subscriptions that a turn passes; each is also the name that its consumer marks events with."""


@dataclass(frozen=True)
class Traces:
    """All that is known of a turn."""

    buffer: BufferTrace | None = None
    memory: Evidence | None = None
    buffer_down: bool = False
    memory_down: bool = False

    @property
    def degraded(self) -> tuple[str, ...]:
        """What did not answer."""
        down = {"buffer": self.buffer_down, "memory": self.memory_down}
        return tuple(name for name, failed in down.items() if failed)


def receipt_of(
    session_id: str, turn_id: str, traces: Traces, *, now: datetime, marks_kept: timedelta
) -> Receipt | None:
    """The receipt; None where nobody has heard of the turn.

    `marks_kept`: how long it is remembered that an event was processed. Where an older turn has no other
    trace of a stage, nobody can tell any more.
    """
    memory = traces.memory or Evidence()
    if traces.buffer is None and memory == Evidence():
        return None
    reading = _Reading(traces, memory, now - marks_kept)
    stages = (
        reading.accepted(),
        reading.published(),
        reading.summarised(),
        reading.extracted(),
        *reading.episodes(),
    )
    parked = [letter for letter in memory.letters if not reading.outdated(letter, stages)]
    return Receipt(
        session_id=session_id,
        turn_id=turn_id,
        stages=stages,
        parked=tuple(_view(letter) for letter in parked),
        degraded=traces.degraded,
    )


class _Reading:
    """One turn's traces, read stage by stage."""

    def __init__(self, traces: Traces, memory: Evidence, forgotten_before: datetime) -> None:
        self._traces = traces
        self._buffer = traces.buffer
        self._memory = memory
        self._letters = {letter.subscription: letter for letter in memory.letters}
        recorded = memory.recorded_at
        self._forgotten = recorded is not None and recorded < forgotten_before

    def accepted(self) -> StageView:
        """Whether it is in the buffer, or has been."""
        at = _earliest([self._seen_at(), self._buffer and self._buffer.published_at])
        if self._buffer and self._buffer.state == "open":
            return StageView(stage="accepted", state="waiting", note="the turn still grows")
        if self._buffer or self._was_seen():
            return StageView(stage="accepted", state="done", at=at)
        return self._not_done("accepted", INGEST, unsure=self._traces.buffer_down)

    def published(self) -> StageView:
        """Whether its `turn.recorded` is out: the buffer has a mark, or a subscriber has seen it."""
        marked = self._buffer.published_at if self._buffer else None
        if marked or self._was_seen() or (self._buffer and self._buffer.state == "trimmed"):
            return StageView(stage="published", state="done", at=_earliest([marked, self._seen_at()]))
        return self._not_done(
            "published", INGEST, unsure=self._traces.buffer_down or self._traces.memory_down
        )

    def summarised(self) -> StageView:
        """Whether a summary covers it, and which version."""
        memory = self._memory
        if memory.summary_version is not None:
            return StageView(
                stage="summarised",
                state="set aside" if memory.set_aside else "done",
                at=memory.summarised_at,
                version=memory.summary_version,
                note="the summary goes without it" if memory.set_aside else "",
            )
        if self._buffer and self._buffer.state == "trimmed":
            return StageView(stage="summarised", state="done")
        waiting = "the latest turns stay verbatim" if self._buffer else ""
        return self._not_done("summarised", SUMMARIZER, unsure=self._traces.memory_down, note=waiting)

    def extracted(self) -> StageView:
        """Whether the extractor is done with it, and how many statements it gave."""
        at = self._memory.processed.get(EXTRACTOR)
        if at or self._memory.statements:
            return StageView(stage="extracted", state="done", at=at, count=self._memory.statements)
        return self._not_done("extracted", EXTRACTOR, unsure=self._unsure)

    def episodes(self) -> tuple[StageView, StageView, StageView]:
        """Embedded, searchable by words, searchable by vector."""
        memory = self._memory
        at = memory.processed.get(EMBEDDER)
        chunks = memory.chunks
        if at or (chunks and memory.vectors == chunks):
            embedded = StageView(stage="embedded", state="done", at=at, count=chunks)
            vector = embedded.model_copy(update={"stage": "searchable by vector", "note": _empty(chunks)})
        else:
            note = f"{memory.vectors} of {chunks} pieces" if memory.vectors else ""
            embedded = self._not_done("embedded", EMBEDDER, unsure=self._unsure, note=note)
            vector = embedded.model_copy(update={"stage": "searchable by vector"})
        if at or chunks:
            words = StageView(
                stage="searchable by words",
                state="done",
                at=memory.indexed_at or at,
                count=chunks,
                note=_empty(chunks),
            )
        else:
            words = self._not_done("searchable by words", EMBEDDER, unsure=self._unsure)
        return embedded, words, vector

    def outdated(self, letter: IndexedLetter, stages: Iterable[StageView]) -> bool:
        """Whether what the letter is about has been done meanwhile."""
        about: dict[str, StageName] = {
            INGEST: "published",
            SUMMARIZER: "summarised",
            EXTRACTOR: "extracted",
            EMBEDDER: "embedded",
        }
        stage = about.get(letter.subscription)
        return any(each.stage == stage and each.state == "done" for each in stages)

    @property
    def _unsure(self) -> bool:
        return self._traces.memory_down or self._forgotten

    def _not_done(self, stage: StageName, subscription: str, *, unsure: bool, note: str = "") -> StageView:
        letter = self._letters.get(subscription)
        if letter:
            return StageView(stage=stage, state="parked", at=letter.parked_at, note=letter.error)
        return (
            StageView(stage=stage, state="unknown")
            if unsure
            else StageView(stage=stage, state="waiting", note=note)
        )

    def _was_seen(self) -> bool:
        """Whether a subscriber of `turn.recorded` has had it."""
        memory = self._memory
        return bool(
            memory.recorded_at
            or memory.summary_version is not None
            or memory.processed
            or memory.statements
            or memory.chunks
            or self._letters.keys() - {INGEST}
        )

    def _seen_at(self) -> datetime | None:
        memory = self._memory
        letters = [letter.first_seen for name, letter in self._letters.items() if name != INGEST]
        return _earliest([memory.recorded_at, *memory.processed.values(), *letters])


def _earliest(moments: Iterable[datetime | None]) -> datetime | None:
    return min((moment for moment in moments if moment), default=None)


def _empty(chunks: int) -> str:
    return "" if chunks else "nothing in it to search for"


def _view(letter: IndexedLetter) -> ParkedView:
    return ParkedView(
        subscription=letter.subscription,
        error=letter.error,
        reason=letter.reason,
        failures=letter.failures,
        service=letter.service,
        first_seen=letter.first_seen,
        parked_at=letter.parked_at,
        trace_id=letter.trace_id,
    )
