"""One user's memory as JSON Lines: whatever it is that `lamina forget` would take away."""

import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from lamina import strict_json
from lamina.forgetting import Selection
from lamina.model import Turn
from lamina.ports import Buffer
from lamina.postgres.database import Database
from lamina.postgres.exporting import Snapshot, snapshot
from lamina.valkey.sessions import ValkeySessions

KINDS = ("session", "turn", "statement", "entity", "summary", "episode", "compaction", "tombstone")
"""In this order; `end` follows."""


async def export(
    selection: Selection,
    *,
    database: Database,
    buffer: Buffer,
    buffered: ValkeySessions,
    vectors: bool = False,
) -> AsyncGenerator[bytes]:
    """Every line, in an order that the same memory always has.

    The last one says how many there were of each kind: a file without it was cut off. The buffer is read
    first, so that a turn on its way into the log is found on one side at least.
    """
    held = await _held(selection, buffer, buffered)
    counts = Counter(dict.fromkeys(KINDS, 0))
    async with snapshot(database, selection, vectors=vectors) as memory:
        logged = await memory.logged(held)
        waiting = [turn for turn in held if (turn.session_id, turn.turn_id) not in logged]
        for kind in KINDS:
            if kind == "turn":
                async for turn, is_logged in _turns(memory, waiting):
                    counts[kind] += 1
                    yield _line({"kind": kind, "logged": is_logged, "turn": turn.to_json()})
                continue
            async for row in memory.rows(kind):
                counts[kind] += 1
                yield _line({"kind": kind, kind: _plain(row)})
    yield _line({"kind": "end", "app": selection.app, "user_id": selection.user_id, "counts": dict(counts)})


async def _held(selection: Selection, buffer: Buffer, buffered: ValkeySessions) -> list[Turn]:
    """The buffer's turns, in the order of the log."""
    sessions = await buffered.of_user(selection.app, selection.user_id)
    turns = [
        turn
        for session_id in sessions
        if selection.session_id in (None, session_id)
        for turn in (await buffer.read(selection.session(session_id))).turns
        if selection.project_id in (None, turn.project_id)
    ]
    return sorted(turns, key=_order)


async def _turns(memory: Snapshot, waiting: Sequence[Turn]) -> AsyncIterator[tuple[Turn, bool]]:
    """The log's turns, and in their places those that only the buffer has so far (False)."""
    ahead = list(reversed(waiting))
    async for turn in memory.turns():
        while ahead and _order(ahead[-1]) < _order(turn):
            yield ahead.pop(), False
        yield turn, True
    while ahead:
        yield ahead.pop(), False


def _order(turn: Turn) -> tuple[str, datetime, str]:
    return (turn.session_id, *turn.order)


def _line(value: dict[str, Any]) -> bytes:
    return strict_json.dumps(value) + b"\n"


def _plain(value: Any) -> Any:
    """What JSON has no type for as text."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_plain(each) for each in cast("Sequence[Any]", value)]
        case datetime():
            return value.astimezone(UTC).isoformat()
        case uuid.UUID():
            return str(value)
        case _:
            return value
