"""Statements and entities in the database."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from psycopg.rows import DictRow

from lamina.api import EntityView
from lamina.model import Entity, Statement, Turn
from lamina.ports import Reconciled, Vector
from lamina.postgres.database import Connection, Database, Query
from lamina.postgres.processed import mark, result_of
from lamina.postgres.turn_log import lock
from lamina.recall.words import searchable, text_search_config
from lamina.reconcile import entities_of

CONSUMER = "entity-extractor"


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
            # One writer of a user's entities at a time: a slot is derived from all of its statements.
            await lock(conn, "entities", app, user_id)
            done = await result_of(conn, CONSUMER, app, user_id, event_id)
            if done is not None:
                return _reconciled(done)
            said = () if await _extracted_before(conn, turn) else statements
            changed = await _derive(conn, turn, said, extractor) if said else ()
            result = [str(entity_id) for entity_id in changed]
            await mark(conn, CONSUMER, app, user_id, event_id, result=result)
        return Reconciled(changed)

    async def absorbed(self, turn: Turn, event_id: uuid.UUID) -> Reconciled | None:
        """What absorbing this event changed; None where it has not been absorbed."""
        async with self._database.as_user(turn.app, turn.user_id) as conn:
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
        return {row["entity_id"]: f"{row['subject']}: {row['text']}" for row in rows}

    async def embed(self, turn: Turn, vectors: dict[uuid.UUID, Vector], model: str) -> None:
        """Store vectors of the user's entities, with the model that made them. Idempotent."""
        async with self._database.as_user(turn.app, turn.user_id) as conn, conn.cursor() as cursor:
            await cursor.executemany(
                """
                UPDATE lamina.entities
                SET embedding = %(vector)s::vector, embedding_model = %(model)s
                WHERE app = %(app)s AND user_id = %(user_id)s AND entity_id = %(entity_id)s
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


async def _derive(
    conn: Connection, turn: Turn, said: Sequence[Statement], extractor: str
) -> tuple[uuid.UUID, ...]:
    """Log what was said and bring the touched slots' rows in line. Gives what is not as before."""
    await _log(conn, turn, said, extractor)
    slots = _slots(turn, said)
    logged = await conn.execute(
        """
        SELECT s.scope, s.project_id, s.kind, s.subject, s.text, s.said_by, s.session_id, s.turn_id,
               s.ordinal, s.said_at, s.language
        FROM lamina.statements AS s
        JOIN unnest(%(scopes)s::text[], %(owners)s::text[], %(subjects)s::text[])
          AS slot (scope, owner, subject) USING (scope, owner, subject)
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s
        """,
        slots,
    )
    held = await conn.execute(
        """
        SELECT e.scope, e.project_id, e.kind, e.subject, e.text, e.said_by, e.session_id, e.turn_id,
               e.ordinal, e.said_at, e.language, e.entity_id, e.valid_from, e.valid_to, e.superseded_by,
               e.sources, e.last_said_at
        FROM lamina.entities AS e
        JOIN unnest(%(scopes)s::text[], %(owners)s::text[], %(subjects)s::text[])
          AS slot (scope, owner, subject) USING (scope, owner, subject)
        WHERE e.app = %(app)s AND e.user_id = %(user_id)s
        """,
        slots,
    )
    statements = [Statement.model_validate(row) for row in await logged.fetchall()]
    before = {entity.entity_id: entity for entity in map(_entity, await held.fetchall())}
    after = entities_of(turn.app, turn.user_id, statements)
    changed = [entity for entity in after if before.get(entity.entity_id) != entity]
    await _forget(conn, turn, before.keys() - {entity.entity_id for entity in after})
    await _store(conn, turn, changed, extractor)
    return tuple(entity.entity_id for entity in changed)


def _slots(turn: Turn, said: Iterable[Statement]) -> dict[str, Any]:
    scopes, owners, subjects = zip(*sorted({statement.slot for statement in said}), strict=True)
    return {
        "app": turn.app,
        "user_id": turn.user_id,
        "scopes": list(scopes),
        "owners": list(owners),
        "subjects": list(subjects),
    }


def _entity(row: DictRow) -> Entity:
    own = ("entity_id", "valid_from", "valid_to", "superseded_by", "sources", "last_said_at")
    said = {name: value for name, value in row.items() if name not in own}
    return Entity.model_validate({"statement": said, **{name: row[name] for name in own}})


def _statement_columns(turn: Turn, said: Statement) -> dict[str, Any]:
    return {**said.model_dump(mode="python"), "app": turn.app, "user_id": turn.user_id, "owner": said.slot[1]}


async def _log(conn: Connection, turn: Turn, said: Sequence[Statement], extractor: str) -> None:
    async with conn.cursor() as cursor:
        await cursor.executemany(
            """
            INSERT INTO lamina.statements (
                app, user_id, session_id, turn_id, ordinal, scope, owner, project_id, kind, subject, text,
                said_by, said_at, language, extractor
            ) VALUES (
                %(app)s, %(user_id)s, %(session_id)s, %(turn_id)s, %(ordinal)s, %(scope)s, %(owner)s,
                %(project_id)s, %(kind)s, %(subject)s, %(text)s, %(said_by)s, %(said_at)s, %(language)s,
                %(extractor)s
            )
            ON CONFLICT (app, user_id, session_id, turn_id, ordinal) DO NOTHING
            """,
            [{**_statement_columns(turn, statement), "extractor": extractor} for statement in said],
        )


async def _forget(conn: Connection, turn: Turn, entity_ids: Iterable[uuid.UUID]) -> None:
    """Remove entities that begin no run any more: an earlier statement that agrees has arrived since."""
    gone = sorted(entity_ids)
    if gone:
        await conn.execute(
            """
            DELETE FROM lamina.entities
            WHERE app = %(app)s AND user_id = %(user_id)s AND entity_id = ANY(%(gone)s)
            """,
            {"app": turn.app, "user_id": turn.user_id, "gone": gone},
        )


async def _store(conn: Connection, turn: Turn, entities: Sequence[Entity], extractor: str) -> None:
    """Write the entities. They come oldest first: a slot's former entity must end before the next one holds.

    An entity's id fixes its statement, so that a conflict changes only its validity and sources.
    """
    if not entities:
        return
    async with conn.cursor() as cursor:
        await cursor.executemany(
            """
            INSERT INTO lamina.entities AS e (
                entity_id, app, user_id, scope, owner, subject, project_id, session_id, turn_id, ordinal,
                kind, text, said_by, said_at, language, valid_from, valid_to, superseded_by, sources,
                last_said_at, search, extractor
            ) VALUES (
                %(entity_id)s, %(app)s, %(user_id)s, %(scope)s, %(owner)s, %(subject)s, %(project_id)s,
                %(session_id)s, %(turn_id)s, %(ordinal)s, %(kind)s, %(text)s, %(said_by)s, %(said_at)s,
                %(language)s, %(valid_from)s, %(valid_to)s, %(superseded_by)s, %(sources)s, %(last_said_at)s,
                setweight(to_tsvector(%(config)s::regconfig, %(words)s), 'A')
                    || setweight(to_tsvector(%(config)s::regconfig, %(subject_words)s), 'B'),
                %(extractor)s
            )
            ON CONFLICT (entity_id) DO UPDATE
            SET valid_to = excluded.valid_to,
                superseded_by = excluded.superseded_by,
                sources = excluded.sources,
                last_said_at = excluded.last_said_at,
                updated_at = now()
            """,
            [_row(turn, entity, extractor) for entity in entities],
        )


def _row(turn: Turn, entity: Entity, extractor: str) -> dict[str, Any]:
    said = entity.statement
    return {
        **_statement_columns(turn, said),
        "entity_id": entity.entity_id,
        "valid_from": entity.valid_from,
        "valid_to": entity.valid_to,
        "superseded_by": entity.superseded_by,
        "sources": list(entity.sources),
        "last_said_at": entity.last_said_at,
        "config": text_search_config(said.language),
        "words": searchable(said.text, said.language),
        "subject_words": searchable(said.subject, said.language),
        "extractor": extractor,
    }
