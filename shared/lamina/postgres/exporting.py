"""One user's whole memory, read row by row from one moment."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, LiteralString

from lamina import strict_json
from lamina.forgetting import Selection
from lamina.model import Turn
from lamina.postgres.database import Connection, Database
from lamina.postgres.turn_log import turn_of

_FETCH = 200
"""Rows in one round trip."""

_JSON = ("lines", "embedding")
"""Columns that come as JSON text."""

# Parameters of all: app, user_id, session and project (NULL: all of them), vectors.
QUERIES: Mapping[str, LiteralString] = {
    "session": """
        SELECT s.session_id, s.project_id, s.previous_session_id, s.first_seen
        FROM lamina.sessions AS s
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR s.session_id = %(session)s)
          AND (%(project)s::text IS NULL OR s.project_id = %(project)s)
        ORDER BY s.session_id
    """,
    "turn": """
        SELECT t.header::text, t.events::text
        FROM lamina.turns AS t
        WHERE t.app = %(app)s AND t.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR t.session_id = %(session)s)
          AND (%(project)s::text IS NULL OR t.project_id = %(project)s)
        ORDER BY t.session_id, t.occurred_at, t.turn_id
    """,
    "statement": """
        SELECT s.scope, s.project_id, s.kind, s.subject, s.text, s.said_by, s.session_id, s.turn_id,
               s.ordinal, s.said_at, s.language, s.extractor
        FROM lamina.statements AS s
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR s.session_id = %(session)s)
          AND (%(project)s::text IS NULL OR %(project)s IN (s.project_id, s.turn_project_id))
        ORDER BY s.session_id, s.said_at, s.turn_id, s.ordinal
    """,
    "entity": """
        SELECT e.entity_id, e.scope, e.owner, e.project_id, e.kind, e.subject, e.text, e.said_by,
               e.session_id, e.turn_id, e.said_at, e.language, e.valid_from, e.valid_to, e.superseded_by,
               e.sources, e.last_said_at, e.extractor, e.embedding_model,
               CASE WHEN %(vectors)s THEN e.embedding::text END AS embedding
        FROM lamina.entities AS e
        WHERE e.app = %(app)s AND e.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR e.session_id = %(session)s)
          AND (%(project)s::text IS NULL OR EXISTS (
              SELECT FROM lamina.statements AS s
              WHERE s.app = e.app AND s.user_id = e.user_id AND s.scope = e.scope AND s.owner = e.owner
                AND s.subject = e.subject AND %(project)s IN (s.project_id, s.turn_project_id)
          ))
        ORDER BY e.scope, e.owner, e.subject, e.valid_from, e.entity_id
    """,
    "summary": """
        SELECT y.session_id, y.version, y.lines::text, y.model, y.created_at
        FROM lamina.summaries AS y
        WHERE y.app = %(app)s AND y.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR y.session_id = %(session)s)
          AND (%(project)s::text IS NULL OR EXISTS (
              SELECT FROM lamina.sessions AS s
              WHERE s.app = y.app AND s.user_id = y.user_id AND s.session_id = y.session_id
                AND s.project_id = %(project)s
          ))
        ORDER BY y.session_id, y.version
    """,
    "episode": """
        SELECT e.episode_id, e.session_id, e.turn_id, e.ordinal, e.project_id, e.speaker, e.text, e.language,
               e.handle, e.occurred_at, e.archived_by, e.embedding_model,
               CASE WHEN %(vectors)s THEN e.embedding::text END AS embedding
        FROM lamina.episodes AS e
        WHERE e.app = %(app)s AND e.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR e.session_id = %(session)s)
          AND (%(project)s::text IS NULL OR e.project_id = %(project)s)
        ORDER BY e.session_id, e.occurred_at, e.turn_id, e.ordinal
    """,
    "compaction": """
        SELECT c.compaction_id, c.project_id, c.before, c.lines::text, c.model, c.created_at, c.undone_at,
               array(
                   SELECT l.episode_id
                   FROM lamina.compaction_episodes AS l
                   WHERE l.app = c.app AND l.user_id = c.user_id AND l.compaction_id = c.compaction_id
                   ORDER BY l.episode_id
               ) AS episodes
        FROM lamina.compactions AS c
        WHERE c.app = %(app)s AND c.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR EXISTS (
              SELECT FROM lamina.compaction_episodes AS l
              JOIN lamina.episodes AS e ON e.episode_id = l.episode_id
              WHERE l.app = c.app AND l.user_id = c.user_id AND l.compaction_id = c.compaction_id
                AND e.session_id = %(session)s
          ))
          AND (%(project)s::text IS NULL OR c.project_id = %(project)s)
        ORDER BY c.created_at, c.compaction_id
    """,
    "tombstone": """
        SELECT x.scope, x.owner, x.name, x.forgotten_at
        FROM lamina.tombstones AS x
        WHERE x.app = %(app)s AND x.user_id = %(user_id)s
        ORDER BY x.scope, x.owner, x.name
    """,
}


class Snapshot:
    """The user's memory at one moment."""

    def __init__(self, conn: Connection, selection: Selection, *, vectors: bool) -> None:
        self._conn = conn
        self._keys = {
            "app": selection.app,
            "user_id": selection.user_id,
            "session": selection.session_id,
            "project": selection.project_id,
            "vectors": vectors,
        }

    async def turns(self) -> AsyncIterator[Turn]:
        """The log, by session and then as it was said."""
        async for row in self._rows("turn"):
            yield turn_of(row)

    async def rows(self, kind: str) -> AsyncIterator[dict[str, Any]]:
        """Everything else, as it is in its table; columns that hold nothing are left out."""
        async for row in self._rows(kind):
            yield {
                name: strict_json.loads(value) if name in _JSON else value
                for name, value in row.items()
                if value is not None
            }

    async def logged(self, turns: Sequence[Turn]) -> set[tuple[str, str]]:
        """Which of these turns the log has: session and turn."""
        found = await self._conn.execute(
            """
            SELECT t.session_id, t.turn_id
            FROM lamina.turns AS t
            JOIN unnest(%(session_ids)s::text[], %(turn_ids)s::text[]) AS d (session_id, turn_id)
                USING (session_id, turn_id)
            WHERE t.app = %(app)s AND t.user_id = %(user_id)s
            """,
            {
                **self._keys,
                "session_ids": [turn.session_id for turn in turns],
                "turn_ids": [turn.turn_id for turn in turns],
            },
        )
        return {(row["session_id"], row["turn_id"]) for row in await found.fetchall()}

    async def _rows(self, kind: str) -> AsyncIterator[dict[str, Any]]:
        async with self._conn.cursor(name=f"export_{kind}") as cursor:
            cursor.itersize = _FETCH
            await cursor.execute(QUERIES[kind], self._keys)
            async for row in cursor:
                yield row


@asynccontextmanager
async def snapshot(
    database: Database, selection: Selection, *, vectors: bool = False
) -> AsyncGenerator[Snapshot]:
    """The memory of a user, or of one session or project, at this moment. `vectors`: with the embeddings."""
    async with database.snapshot(selection.app, selection.user_id) as conn:
        yield Snapshot(conn, selection, vectors=vectors)
