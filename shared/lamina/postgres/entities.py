"""Statements and entities in the database."""

import uuid
from collections.abc import Sequence

from lamina.api import EntityView
from lamina.model import Statement, Turn
from lamina.ports import Reconciled, Vector
from lamina.postgres.database import Connection, Database, Query
from lamina.postgres.deriving import derive, log_statements
from lamina.postgres.processed import mark, result_of
from lamina.postgres.tombstones import enter, places_of, tombstones_of
from lamina.postgres.turn_log import lock

CONSUMER = "entity-extractor"


def text_to_embed(subject: str, text: str) -> str:
    """What an entity's vector is made of."""
    return f"{subject}: {text}"


class PostgresEntities:
    """The EntityStore of production."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(self, turn: Turn, *, limit: int = 200) -> Sequence[EntityView]:
        """What holds now in the turn's scopes, the latest said first."""
        query: Query = (
            """
            SELECT entity_id, scope, project_id, session_id, kind, subject, text, said_by, turn_id, said_at,
                   valid_to
            FROM lamina.entities
            WHERE app = %(app)s AND user_id = %(user_id)s AND valid_to IS NULL
              AND (scope = 'global'
                   OR scope = 'project' AND owner = %(project_id)s
                   OR scope = 'session' AND owner = %(session_id)s)
            ORDER BY last_said_at DESC, entity_id
            LIMIT %(limit)s
            """,
            {**turn.session.model_dump(), "project_id": turn.project_id, "limit": limit},
        )
        [rows] = await self._database.read(turn.app, turn.user_id, [query])
        return [EntityView.model_validate(row) for row in rows]

    async def absorb(
        self, turn: Turn, statements: Sequence[Statement], extractor: str, event_id: uuid.UUID
    ) -> Reconciled:
        """Log the statements and derive their slots' entities again, with the event, in one transaction.

        A turn is extracted once: where it has statements already, others change nothing.
        """
        app, user_id = turn.app, turn.user_id
        async with self._database.as_user(app, user_id) as conn:
            tombstones = await enter(conn, app, user_id, places_of([turn]))
            tombstones.refuse(turn)
            # One writer of a user's entities at a time: a slot is derived from all of its statements.
            await lock(conn, "entities", app, user_id)
            done = await result_of(conn, CONSUMER, app, user_id, event_id)
            if done is not None:
                return _reconciled(done)
            fresh = not await _extracted_before(conn, turn)
            said = tombstones.kept_statements(statements) if fresh else ()
            await log_statements(conn, app, user_id, said, extractor, turn_project_id=turn.project_id)
            changed = await derive(conn, app, user_id, {statement.slot for statement in said})
            result = [str(entity_id) for entity_id in changed]
            await mark(conn, CONSUMER, app, user_id, event_id, result=result)
        return Reconciled(changed)

    async def absorbed(self, turn: Turn, event_id: uuid.UUID) -> Reconciled | None:
        """What absorbing this event changed; None where it has not been absorbed."""
        async with self._database.as_user(turn.app, turn.user_id) as conn:
            (await tombstones_of(conn, turn.app, turn.user_id, places_of([turn]))).refuse(turn)
            done = await result_of(conn, CONSUMER, turn.app, turn.user_id, event_id)
        return None if done is None else _reconciled(done)

    async def unembedded(self, turn: Turn, entity_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Those of the user's entities that have no vector yet, with the text to embed."""
        query: Query = (
            """
            SELECT entity_id, subject, text
            FROM lamina.entities
            WHERE app = %(app)s AND user_id = %(user_id)s AND entity_id = ANY(%(entity_ids)s)
              AND embedding IS NULL
            ORDER BY entity_id
            """,
            {"app": turn.app, "user_id": turn.user_id, "entity_ids": list(entity_ids)},
        )
        [rows] = await self._database.read(turn.app, turn.user_id, [query])
        return {row["entity_id"]: text_to_embed(row["subject"], row["text"]) for row in rows}

    async def embed(self, turn: Turn, vectors: dict[uuid.UUID, Vector], model: str) -> None:
        """Store vectors of the user's entities that have none yet, with the model that made them."""
        async with self._database.as_user(turn.app, turn.user_id) as conn, conn.cursor() as cursor:
            await cursor.executemany(
                """
                UPDATE lamina.entities
                SET embedding = %(vector)s::vector, embedding_model = %(model)s
                WHERE app = %(app)s AND user_id = %(user_id)s AND entity_id = %(entity_id)s
                  AND embedding IS NULL
                """,
                [
                    {
                        "app": turn.app,
                        "user_id": turn.user_id,
                        "entity_id": entity_id,
                        "vector": str(vector),
                        "model": model,
                    }
                    for entity_id, vector in sorted(vectors.items())
                ],
            )


def _reconciled(done: list[str]) -> Reconciled:
    return Reconciled(tuple(uuid.UUID(entity_id) for entity_id in done))


async def _extracted_before(conn: Connection, turn: Turn) -> bool:
    found = await conn.execute(
        """
        SELECT FROM lamina.statements
        WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
          AND turn_id = %(turn_id)s
        LIMIT 1
        """,
        {**turn.session.model_dump(), "turn_id": turn.turn_id},
    )
    return await found.fetchone() is not None
