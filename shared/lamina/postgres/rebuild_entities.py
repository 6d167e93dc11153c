"""Puts statements that were extracted again in the place of the old ones, and derives the entities."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg.rows import DictRow

from lamina.errors import StaleVersion
from lamina.model import Entity, Statement
from lamina.postgres.database import Connection, Database, Query
from lamina.postgres.deriving import Slot, derive, entity_of, log_statements
from lamina.postgres.entities import CONSUMER, text_to_embed
from lamina.postgres.rebuilds import Rebuild, end, hold
from lamina.postgres.shadows import Item, Unit, items, missing_turns, text_id
from lamina.postgres.tombstones import enter
from lamina.postgres.turn_log import lock


def statements_in(item: Item) -> list[Statement]:
    """What a unit's turn says."""
    return [Statement.model_validate(said) for said in item.result]


class PostgresRebuiltEntities:
    """What the `entities` stage of a rebuild reads and writes of the memory in use."""

    def __init__(self, database: Database, rebuild: Rebuild) -> None:
        self._database = database
        self._rebuild = rebuild

    async def statements(self) -> dict[Unit, list[Statement]]:
        """All of the user's, by turn."""
        query: Query = (
            """
            SELECT s.scope, s.project_id, s.kind, s.subject, s.text, s.said_by, s.session_id, s.turn_id,
                   s.ordinal, s.said_at, s.language
            FROM lamina.statements AS s
            WHERE s.app = %(app)s AND s.user_id = %(user_id)s
            ORDER BY s.session_id, s.turn_id, s.ordinal
            """,
            self._rebuild.keys,
        )
        [rows] = await self._database.read(self._rebuild.app, self._rebuild.user_id, [query])
        held: dict[Unit, list[Statement]] = {}
        for row in rows:
            held.setdefault(Unit(row["session_id"], row["turn_id"]), []).append(Statement.model_validate(row))
        return held

    async def entities(self) -> tuple[list[Entity], set[uuid.UUID]]:
        """All of the user's, and which of them have a vector of the rebuild's embedder."""
        query: Query = (
            """
            SELECT e.scope, e.project_id, e.kind, e.subject, e.text, e.said_by, e.session_id, e.turn_id,
                   e.ordinal, e.said_at, e.language, e.extractor, e.entity_id, e.valid_from, e.valid_to,
                   e.superseded_by, e.sources, e.last_said_at,
                   e.embedding_model IS NOT DISTINCT FROM %(embedder)s AS embedded
            FROM lamina.entities AS e
            WHERE e.app = %(app)s AND e.user_id = %(user_id)s
            """,
            {**self._rebuild.keys, "embedder": self._rebuild.embedder},
        )
        [rows] = await self._database.read(self._rebuild.app, self._rebuild.user_id, [query])
        embedded = {row["entity_id"] for row in rows if row.pop("embedded")}
        return [entity_of(row)[0] for row in rows], embedded

    async def swap(self) -> None:
        """Put the shadow in the place of the memory in use, in one transaction.

        StaleVersion where turns have been logged that are not in the shadow.
        """
        rebuild = self._rebuild
        async with self._database.as_user(rebuild.app, rebuild.user_id) as conn:
            await enter(conn, rebuild.app, rebuild.user_id)
            await lock(conn, "entities", rebuild.app, rebuild.user_id)
            await hold(conn, rebuild)
            if rebuild.maker and await missing_turns(conn, rebuild):
                raise StaleVersion("turns were logged meanwhile")
            made = {
                item.unit: statements_in(item) for item in await items(conn, rebuild) if item.refused is None
            }
            held = await _held(conn, rebuild)
            replaced = {
                unit: said
                for unit, said in made.items()
                if held.get(unit, []) != [(each, rebuild.maker) for each in said]
            }
            await _replace(conn, rebuild, replaced)
            await derive(conn, rebuild.app, rebuild.user_id, await _slots(conn, rebuild))
            await _attach_vectors(conn, rebuild)
            await _mark(conn, rebuild)
            await end(conn, rebuild, "swapped")

    async def dark(self) -> dict[uuid.UUID, str]:
        """The user's entities that have no vector at all, with the text to embed."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            found = await conn.execute(
                """
                SELECT entity_id, subject, text
                FROM lamina.entities
                WHERE app = %(app)s AND user_id = %(user_id)s AND embedding IS NULL
                ORDER BY entity_id
                """,
                self._rebuild.keys,
            )
            rows = await found.fetchall()
        return {row["entity_id"]: text_to_embed(row["subject"], row["text"]) for row in rows}

    async def embed(self, vectors: Mapping[uuid.UUID, list[float]]) -> None:
        """Store vectors of entities that still have none."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            await conn.execute(
                """
                UPDATE lamina.entities AS e
                SET embedding = v.embedding::vector, embedding_model = %(embedder)s
                FROM unnest(%(entity_ids)s::uuid[], %(vectors)s::text[]) AS v (entity_id, embedding)
                WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.entity_id = v.entity_id
                  AND e.embedding IS NULL
                """,
                {
                    **self._rebuild.keys,
                    "embedder": self._rebuild.embedder,
                    "entity_ids": list(vectors),
                    "vectors": [str(vector) for vector in vectors.values()],
                },
            )


async def _held(conn: Connection, rebuild: Rebuild) -> dict[Unit, list[tuple[Statement, str]]]:
    """The statements in scope with their extractor, by turn."""
    found = await conn.execute(
        """
        SELECT s.scope, s.project_id, s.kind, s.subject, s.text, s.said_by, s.session_id, s.turn_id,
               s.ordinal, s.said_at, s.language, s.extractor
        FROM lamina.statements AS s
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s
          AND (%(only_session)s::text IS NULL OR s.session_id = %(only_session)s)
        ORDER BY s.session_id, s.turn_id, s.ordinal
        """,
        rebuild.keys,
    )
    held: dict[Unit, list[tuple[Statement, str]]] = {}
    for row in await found.fetchall():
        extractor: str = row.pop("extractor")
        said = Statement.model_validate(row)
        held.setdefault(Unit(said.session_id, said.turn_id), []).append((said, extractor))
    return held


async def _replace(conn: Connection, rebuild: Rebuild, replaced: Mapping[Unit, Sequence[Statement]]) -> None:
    await conn.execute(
        """
        DELETE FROM lamina.statements AS s
        USING unnest(%(session_ids)s::text[], %(turn_ids)s::text[]) AS gone (session_id, turn_id)
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s
          AND s.session_id = gone.session_id AND s.turn_id = gone.turn_id
        """,
        {**rebuild.keys, **_columns(replaced)},
    )
    found = await conn.execute(
        """
        SELECT t.session_id, t.turn_id, t.project_id
        FROM lamina.turns AS t
        JOIN unnest(%(session_ids)s::text[], %(turn_ids)s::text[]) AS come (session_id, turn_id)
            USING (session_id, turn_id)
        WHERE t.app = %(app)s AND t.user_id = %(user_id)s
        """,
        {**rebuild.keys, **_columns(replaced)},
    )
    said: dict[str | None, list[Statement]] = {}
    for row in await found.fetchall():
        unit = Unit(row["session_id"], row["turn_id"])
        said.setdefault(row["project_id"], []).extend(replaced[unit])
    for project_id, statements in said.items():
        await log_statements(
            conn, rebuild.app, rebuild.user_id, statements, rebuild.maker, turn_project_id=project_id
        )


def _columns(units: Iterable[Unit]) -> dict[str, Any]:
    listed = list(units)
    return {
        "session_ids": [unit.session_id for unit in listed],
        "turn_ids": [unit.turn_id for unit in listed],
    }


async def _slots(conn: Connection, rebuild: Rebuild) -> list[Slot]:
    """Every slot that has statements, or had: its entities go."""
    found = await conn.execute(
        """
        SELECT scope, owner, subject
        FROM lamina.statements
        WHERE app = %(app)s AND user_id = %(user_id)s
        UNION
        SELECT scope, owner, subject
        FROM lamina.entities
        WHERE app = %(app)s AND user_id = %(user_id)s
        """,
        rebuild.keys,
    )
    return [(row["scope"], row["owner"], row["subject"]) for row in await found.fetchall()]


async def _attach_vectors(conn: Connection, rebuild: Rebuild) -> None:
    """Give the entities that need one the vector that waits for their text."""
    keys = {**rebuild.keys, "embedder": rebuild.embedder}
    found = await conn.execute(
        """
        SELECT entity_id, subject, text
        FROM lamina.entities
        WHERE app = %(app)s AND user_id = %(user_id)s
          AND embedding_model IS DISTINCT FROM %(embedder)s
        """,
        keys,
    )
    rows: list[DictRow] = await found.fetchall()
    await conn.execute(
        """
        UPDATE lamina.entities AS e
        SET embedding = v.embedding, embedding_model = %(embedder)s
        FROM unnest(%(entity_ids)s::uuid[], %(text_ids)s::uuid[]) AS wanted (entity_id, text_id)
        JOIN lamina.rebuild_vectors AS v
            ON v.rebuild_id = %(rebuild_id)s AND v.text_id = wanted.text_id
        WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.entity_id = wanted.entity_id
        """,
        {
            **keys,
            "entity_ids": [row["entity_id"] for row in rows],
            "text_ids": [text_id(text_to_embed(row["subject"], row["text"])) for row in rows],
        },
    )


async def _mark(conn: Connection, rebuild: Rebuild) -> None:
    """The extractor need not do these turns: a late delivery, or a dead letter's replay, changes nothing."""
    await conn.execute(
        """
        INSERT INTO lamina.processed_events (app, user_id, consumer, event_id, result)
        SELECT t.app, t.user_id, %(consumer)s, t.recorded_event, '[]'
        FROM lamina.rebuild_items AS i
        JOIN lamina.turns AS t
            ON t.app = i.app AND t.user_id = i.user_id AND t.session_id = i.session_id
               AND t.turn_id = i.turn_id
        WHERE i.rebuild_id = %(rebuild_id)s AND i.app = %(app)s AND i.user_id = %(user_id)s
          AND i.refused IS NULL AND t.recorded_event IS NOT NULL
        ON CONFLICT (app, user_id, consumer, event_id) DO NOTHING
        """,
        {**rebuild.keys, "consumer": CONSUMER},
    )
