"""A buffer in this process, under the same contract as the one on Valkey."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from lamina import strict_json
from lamina.errors import DependencyUnavailable, Forgotten, InvalidEvent
from lamina.forgetting import Tombstone
from lamina.model import SessionKey, Summary, Turn
from lamina.ports import Appended, BufferTrace, BufferView


@dataclass
class _Held:
    """A turn as JSON text, so that a caller's later changes do not reach it."""

    header: bytes
    events: list[bytes]
    open: bool = True
    published_at: datetime | None = None

    @property
    def turn(self) -> Turn:
        fields = cast("dict[str, Any]", strict_json.loads(self.header))
        return Turn.model_validate({**fields, "events": [strict_json.loads(event) for event in self.events]})


@dataclass
class _Session:
    turns: dict[str, _Held] = field(default_factory=dict[str, _Held])
    trimmed: set[str] = field(default_factory=set[str])
    summary: Summary | None = None
    known: bool = False


class InMemoryBuffer:
    """Implements `lamina.ports.Buffer`. Keeps everything until `lose` is called."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, _Session] = {}
        self._tombstones: dict[tuple[str, str], tuple[Tombstone, ...]] = {}
        self.down = False
        """While True, every call raises DependencyUnavailable."""

    def lose(self) -> None:
        """Forget everything, as a server that restarts empty does."""
        self._sessions.clear()
        self._tombstones.clear()

    async def append(self, turn: Turn, *, first_event: int = 0, close: bool = True) -> Appended:
        """See `Buffer.append`."""
        if any(stone.hits(turn) for stone in self._tombstones.get((turn.app, turn.user_id), ())):
            raise Forgotten(f"turn {turn.turn_id} was forgotten at its user's wish")
        session = self._session(turn.session)
        if turn.turn_id in session.trimmed:
            return Appended(duplicate=True, closed=turn if close and first_event == 0 else None)
        if not session.known:  # what is cached of turns that were lost is lost with them
            session.summary = None
        held = session.turns.get(turn.turn_id) or _Held(strict_json.dumps(turn.header()), [])
        have, stop = len(held.events), first_event + len(turn.events)
        if first_event > have:
            raise InvalidEvent(
                [f"events: turn {turn.turn_id!r} holds {have} events; position {first_event} leaves a gap"]
            )
        if not held.open and stop > have:
            raise InvalidEvent(
                [f"events: turn {turn.turn_id!r} is closed with {have} events and cannot grow"]
            )
        duplicate = stop <= have and not (close and held.open)
        held.events.extend(strict_json.dumps(event.root) for event in turn.events[have - first_event :])
        held.open = held.open and not close
        session.turns[turn.turn_id] = held
        session.known = True
        self._sessions[turn.session] = session
        return Appended(duplicate=duplicate, closed=None if held.open else held.turn)

    async def read(self, session: SessionKey, *, last: int | None = None) -> BufferView:
        """See `Buffer.read`."""
        found = self._session(session)
        turns = sorted((held.turn for held in found.turns.values()), key=lambda turn: turn.order)
        turns = turns if last is None else turns[max(len(turns) - max(last, 0), 0) :]
        return BufferView(
            known=found.known,
            turns=tuple(turns),
            open_turns=frozenset(turn.turn_id for turn in turns if found.turns[turn.turn_id].open),
            summary=found.summary,
        )

    async def trim(self, session: SessionKey, covered: Sequence[str], summary: Summary) -> bool:
        """See `Buffer.trim`."""
        found = self._session(session)
        if found.summary and found.summary.version > summary.version:
            return False
        found.summary = summary
        for turn_id in covered:
            if turn_id in found.turns and not found.turns[turn_id].open:
                del found.turns[turn_id]
                found.trimmed.add(turn_id)
        self._sessions[session] = found
        return True

    async def drop(self, session: SessionKey, turn_ids: Sequence[str], *, summary: bool = False) -> int:
        """See `Buffer.drop`."""
        found = self._session(session)
        held = [turn_id for turn_id in turn_ids if found.turns.pop(turn_id, None)]
        found.trimmed.difference_update(turn_ids)
        if summary:
            found.summary = None
            found.trimmed.clear()
        if not (found.turns or found.trimmed):
            found.known = False
        return len(held)

    async def entomb(self, app: str, user_id: str, tombstones: Sequence[Tombstone]) -> None:
        """See `Buffer.entomb`."""
        self._tombstones[app, user_id] = (*self._tombstones.get((app, user_id), ()), *tombstones)

    async def mark_published(self, session: SessionKey, turn_id: str) -> bool:
        """See `Buffer.mark_published`."""
        held = self._session(session).turns.get(turn_id)
        if held is None:
            return False
        held.published_at = held.published_at or datetime.now(UTC)
        return True

    async def trace(self, session: SessionKey, turn_id: str) -> BufferTrace | None:
        """See `Buffer.trace`."""
        found = self._session(session)
        held = found.turns.get(turn_id)
        if held is None:
            return BufferTrace("trimmed") if turn_id in found.trimmed else None
        return BufferTrace("open" if held.open else "closed", held.published_at)

    async def ping(self) -> None:
        """Raise DependencyUnavailable while `down`."""
        self._session(SessionKey(app="ping", user_id="ping", session_id="ping"))

    def _session(self, key: SessionKey) -> _Session:
        if self.down:
            raise DependencyUnavailable("valkey", "the in-memory buffer is set to be down")
        return self._sessions.get(key) or _Session()
