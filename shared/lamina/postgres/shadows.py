"""What a rebuild has made so far, in the database: kept unit by unit, and read by nobody else."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lamina import strict_json
from lamina.forgetting import Tombstones
from lamina.model import Turn, derived_id
from lamina.ports import Vector
from lamina.postgres.database import Connection, Database, Query
from lamina.postgres.rebuilds import Rebuild, ended
from lamina.postgres.tombstones import tombstones_of
from lamina.postgres.turn_log import find_turn


@dataclass(frozen=True)
class Unit:
    """What is made in one go: a turn, or (`turn_id` empty) a session."""

    session_id: str
    turn_id: str = ""


@dataclass(frozen=True)
class Item:
    """What a unit became."""

    unit: Unit
    result: Any
    """A JSON value."""
    refused: str | None = None
    """Why the model would not do it."""


def text_id(text: str) -> uuid.UUID:
    """Names a text whose vector is kept."""
    return derived_id("text", text)


class PostgresShadow:
    """The shadow of one rebuild."""

    def __init__(self, database: Database, rebuild: Rebuild) -> None:
        self._database = database
        self._rebuild = rebuild

    async def missing_turns(self) -> list[Unit]:
        """The turns of the log that are in scope and not done yet, oldest first."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            return await missing_turns(conn, self._rebuild)

    async def count(self) -> int:
        """How many units are done."""
        query: Query = (
            """
            SELECT count(*) AS done
            FROM lamina.rebuild_items
            WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s
            """,
            self._rebuild.keys,
        )
        [[row]] = await self._database.read(self._rebuild.app, self._rebuild.user_id, [query])
        return row["done"]

    async def turn(self, unit: Unit) -> Turn | None:
        """A turn of the log; None where it was forgotten meanwhile."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            return await find_turn(conn, self._rebuild.session(unit.session_id), unit.turn_id)

    async def items(self, *, without: str = "") -> list[Item]:
        """What was made so far, by session and turn; without this field of the results."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            return await items(conn, self._rebuild, without=without)

    async def put(self, item: Item) -> None:
        """Keep what a unit became, in place of what is kept of it. NotFound where the rebuild was ended."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            await self._share(conn)
            await conn.execute(
                """
                INSERT INTO lamina.rebuild_items (
                    rebuild_id, app, user_id, session_id, turn_id, refused, result
                ) VALUES (
                    %(rebuild_id)s, %(app)s, %(user_id)s, %(session_id)s, %(turn_id)s, %(refused)s,
                    %(result)s::json
                )
                ON CONFLICT (rebuild_id, session_id, turn_id) DO UPDATE
                SET refused = excluded.refused, result = excluded.result
                """,
                {
                    **self._rebuild.keys,
                    "session_id": item.unit.session_id,
                    "turn_id": item.unit.turn_id,
                    "refused": item.refused,
                    "result": strict_json.dumps(item.result).decode("ascii"),
                },
            )

    async def tombstones(self) -> Tombstones:
        """What may not be learned again. Stays the same while the rebuild is open."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            return await tombstones_of(conn, self._rebuild.app, self._rebuild.user_id)

    async def without_vector(self, texts: Iterable[str]) -> list[str]:
        """Those of these texts whose vector is not kept yet, each once."""
        by_id = {text_id(text): text for text in texts}
        query: Query = (
            """
            SELECT text_id
            FROM lamina.rebuild_vectors
            WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s
              AND text_id = ANY(%(text_ids)s)
            """,
            {**self._rebuild.keys, "text_ids": list(by_id)},
        )
        [rows] = await self._database.read(self._rebuild.app, self._rebuild.user_id, [query])
        kept = {row["text_id"] for row in rows}
        return [text for each, text in by_id.items() if each not in kept]

    async def put_vectors(self, vectors: Mapping[str, Vector]) -> None:
        """Keep the vectors of these texts. NotFound where the rebuild was ended."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            await self._share(conn)
            await conn.execute(
                """
                INSERT INTO lamina.rebuild_vectors (rebuild_id, app, user_id, text_id, embedding)
                SELECT %(rebuild_id)s, %(app)s, %(user_id)s, v.text_id, v.embedding::vector
                FROM unnest(%(text_ids)s::uuid[], %(vectors)s::text[]) AS v (text_id, embedding)
                ON CONFLICT (rebuild_id, text_id) DO NOTHING
                """,
                {
                    **self._rebuild.keys,
                    "text_ids": [text_id(text) for text in vectors],
                    "vectors": [str(vector) for vector in vectors.values()],
                },
            )

    async def _share(self, conn: Connection) -> None:
        """Nobody ends the rebuild until the transaction does. NotFound where somebody has."""
        held = await conn.execute(
            """
            SELECT FROM lamina.rebuilds
            WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s
              AND ended_at IS NULL
            FOR SHARE
            """,
            self._rebuild.keys,
        )
        if await held.fetchone() is None:
            raise ended()


async def missing_turns(conn: Connection, rebuild: Rebuild) -> list[Unit]:
    """The turns of the log that are in scope and not done yet, oldest first."""
    found = await conn.execute(
        """
        SELECT t.session_id, t.turn_id
        FROM lamina.turns AS t
        WHERE t.app = %(app)s AND t.user_id = %(user_id)s
          AND (%(only_session)s::text IS NULL OR t.session_id = %(only_session)s)
          AND NOT EXISTS (
              SELECT FROM lamina.rebuild_items AS i
              WHERE i.rebuild_id = %(rebuild_id)s AND i.session_id = t.session_id AND i.turn_id = t.turn_id
          )
        ORDER BY t.occurred_at, t.turn_id, t.session_id
        """,
        rebuild.keys,
    )
    return [Unit(**row) for row in await found.fetchall()]


async def items(
    conn: Connection, rebuild: Rebuild, session_id: str | None = None, *, without: str = ""
) -> list[Item]:
    """What was made so far (of one session), by session and turn; without this field of the results."""
    found = await conn.execute(
        """
        SELECT i.session_id, i.turn_id, i.refused,
               CASE WHEN %(without)s = '' THEN i.result::text ELSE (i.result::jsonb - %(without)s)::text END
                   AS result
        FROM lamina.rebuild_items AS i
        WHERE i.rebuild_id = %(rebuild_id)s AND i.app = %(app)s AND i.user_id = %(user_id)s
          AND (%(session_id)s::text IS NULL OR i.session_id = %(session_id)s)
        ORDER BY i.session_id, i.turn_id
        """,
        {**rebuild.keys, "session_id": session_id, "without": without},
    )
    return [
        Item(Unit(row["session_id"], row["turn_id"]), strict_json.loads(row["result"]), row["refused"])
        for row in await found.fetchall()
    ]
