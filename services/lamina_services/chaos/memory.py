"""All that a stack remembers of the story, read straight from its stores: only tests may do this."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from lamina import strict_json
from lamina.model import SessionKey, Turn
from lamina.ports import BufferView
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import connect
from lamina_services.local.home import StackState

_ANY_TTL_S = 3600
_AT_ONCE = 16

Rows = dict[tuple[Any, ...], tuple[Any, ...]]
"""Values by their key."""

_SESSIONS: LiteralString = """
    SELECT app, user_id, session_id, project_id, previous_session_id, first_seen
    FROM lamina.sessions WHERE app = ANY(%(apps)s)
"""
_STATEMENTS: LiteralString = """
    SELECT app, user_id, session_id, turn_id, ordinal,
           scope, owner, project_id, kind, subject, text, said_by, said_at, language, extractor
    FROM lamina.statements WHERE app = ANY(%(apps)s)
"""
_ENTITIES: LiteralString = """
    SELECT entity_id,
           app, user_id, scope, owner, subject, project_id, session_id, turn_id, ordinal, kind, text, said_by,
           said_at, language, valid_from, valid_to, superseded_by, sources, last_said_at, search::text,
           md5(embedding::text), embedding_model
    FROM lamina.entities WHERE app = ANY(%(apps)s)
"""
_EPISODES: LiteralString = """
    SELECT episode_id,
           app, user_id, session_id, turn_id, ordinal, project_id, speaker, text, language, handle,
           occurred_at, search::text, md5(embedding::text), embedding_model, archived_by
    FROM lamina.episodes WHERE app = ANY(%(apps)s)
"""
_SUMMARIES: LiteralString = """
    SELECT DISTINCT ON (app, user_id, session_id) app, user_id, session_id, lines::text, model
    FROM lamina.summaries WHERE app = ANY(%(apps)s)
    ORDER BY app, user_id, session_id, version DESC
"""
_COVERED: LiteralString = """
    SELECT app, user_id, session_id, turn_id, set_aside
    FROM lamina.summary_turns WHERE app = ANY(%(apps)s)
"""
_TURNS: LiteralString = """
    SELECT app, user_id, session_id, turn_id, header::text, events::text
    FROM lamina.turns WHERE app = ANY(%(apps)s)
"""


@dataclass(frozen=True)
class Memory:
    """The stores' contents, less what tells only when a row was written."""

    turns: dict[tuple[str, ...], dict[str, Any]]
    """JSON by (app, user, session, turn)."""
    buffers: dict[str, BufferView]
    """By the session's digest."""
    covered: Rows
    """The turns that a summary covers, and whether it goes without them."""
    kinds: dict[str, Rows]
    """Everything that follows from the turns, by kind."""


async def remembered(state: StackState, turns: Iterable[Turn]) -> Memory:
    """What a stack holds of these turns' apps."""
    apps = sorted({turn.app for turn in turns})
    sessions = list({str(turn.session): turn.session for turn in turns}.values())
    async with await psycopg.AsyncConnection.connect(state.database_url) as db:
        return Memory(
            turns={
                row[:4]: {**strict_json.loads(row[4]), "events": strict_json.loads(row[5])}
                for row in await _read(db, _TURNS, apps)
            },
            buffers=await _buffers(state, sessions),
            covered=_rows(await _read(db, _COVERED, apps), 4),
            kinds={
                "sessions": _rows(await _read(db, _SESSIONS, apps), 3),
                "statements": _rows(await _read(db, _STATEMENTS, apps), 5),
                "entities": _rows(await _read(db, _ENTITIES, apps), 1),
                "episodes": _rows(await _read(db, _EPISODES, apps), 1),
                "summaries": _rows(await _read(db, _SUMMARIES, apps), 3),
            },
        )


async def _read(
    db: psycopg.AsyncConnection[tuple[Any, ...]], query: LiteralString, apps: Sequence[str]
) -> list[tuple[Any, ...]]:
    return await (await db.execute(query, {"apps": list(apps)})).fetchall()


def _rows(rows: Iterable[tuple[Any, ...]], key: int) -> Rows:
    return {row[:key]: row[key:] for row in rows}


async def _buffers(state: StackState, sessions: Sequence[SessionKey]) -> dict[str, BufferView]:
    client = connect(state.valkey_url)
    buffer, gate = ValkeyBuffer(client, _ANY_TTL_S), asyncio.Semaphore(_AT_ONCE)

    async def view(session: SessionKey) -> tuple[str, BufferView]:
        async with gate:
            return session.digest, await buffer.read(session)

    try:
        return dict(await asyncio.gather(*map(view, sessions)))
    finally:
        await client.aclose()
