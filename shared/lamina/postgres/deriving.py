"""Entities follow from statements: keeps the rows of slots in line with what was said in them."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from psycopg.rows import DictRow

from lamina.model import Entity, Statement
from lamina.postgres.database import Connection
from lamina.recall.words import searchable, text_search_config
from lamina.reconcile import entities_of

Slot = tuple[str, str, str]
Place = tuple[str, str, int]
"""Where a statement stands: session, turn and ordinal."""


async def log_statements(
    conn: Connection,
    app: str,
    user_id: str,
    said: Sequence[Statement],
    extractor: str,
    *,
    turn_project_id: str | None = None,
) -> None:
    """Write statements. The caller holds the user's `entities` lock, and derives their slots next."""
    async with conn.cursor() as cursor:
        await cursor.executemany(
            """
            INSERT INTO lamina.statements (
                app, user_id, session_id, turn_id, ordinal, scope, owner, project_id, kind, subject, text,
                said_by, said_at, language, extractor, turn_project_id
            ) VALUES (
                %(app)s, %(user_id)s, %(session_id)s, %(turn_id)s, %(ordinal)s, %(scope)s, %(owner)s,
                %(project_id)s, %(kind)s, %(subject)s, %(text)s, %(said_by)s, %(said_at)s, %(language)s,
                %(extractor)s, %(turn_project_id)s
            )
            ON CONFLICT (app, user_id, session_id, turn_id, ordinal) DO NOTHING
            """,
            [
                {**_columns(app, user_id, each), "extractor": extractor, "turn_project_id": turn_project_id}
                for each in said
            ],
        )


async def derive(conn: Connection, app: str, user_id: str, slots: Iterable[Slot]) -> tuple[uuid.UUID, ...]:
    """Bring the rows of these slots in line with their statements. Gives the entities that are not as before.

    The caller holds the user's `entities` lock.
    """
    wanted = sorted(set(slots))
    if not wanted:
        return ()
    scopes, owners, subjects = zip(*wanted, strict=True)
    names = {
        "app": app,
        "user_id": user_id,
        "scopes": list(scopes),
        "owners": list(owners),
        "subjects": list(subjects),
    }
    logged = await conn.execute(
        """
        SELECT s.scope, s.project_id, s.kind, s.subject, s.text, s.said_by, s.session_id, s.turn_id,
               s.ordinal, s.said_at, s.language, s.extractor
        FROM lamina.statements AS s
        JOIN unnest(%(scopes)s::text[], %(owners)s::text[], %(subjects)s::text[])
          AS slot (scope, owner, subject) USING (scope, owner, subject)
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s
        """,
        names,
    )
    held = await conn.execute(
        """
        SELECT e.scope, e.project_id, e.kind, e.subject, e.text, e.said_by, e.session_id, e.turn_id,
               e.ordinal, e.said_at, e.language, e.extractor, e.entity_id, e.valid_from, e.valid_to,
               e.superseded_by, e.sources, e.last_said_at
        FROM lamina.entities AS e
        JOIN unnest(%(scopes)s::text[], %(owners)s::text[], %(subjects)s::text[])
          AS slot (scope, owner, subject) USING (scope, owner, subject)
        WHERE e.app = %(app)s AND e.user_id = %(user_id)s
        """,
        names,
    )
    statements: list[Statement] = []
    made_by: dict[Place, str] = {}
    for row in await logged.fetchall():
        extractor: str = row.pop("extractor")
        statements.append(Statement.model_validate(row))
        made_by[_place(statements[-1])] = extractor
    before = {entity.entity_id: (entity, by) for entity, by in map(entity_of, await held.fetchall())}
    after = [(entity, made_by[_place(entity.statement)]) for entity in entities_of(app, user_id, statements)]
    changed = [(entity, by) for entity, by in after if before.get(entity.entity_id) != (entity, by)]
    await _remove(conn, app, user_id, before.keys() - {entity.entity_id for entity, _ in after})
    await _store(conn, [_row(app, user_id, entity, by) for entity, by in changed])
    return tuple(entity.entity_id for entity, _ in changed)


def _place(said: Statement) -> Place:
    return (said.session_id, said.turn_id, said.ordinal)


def entity_of(row: DictRow) -> tuple[Entity, str]:
    """The entity of a row, and the extractor of its statement."""
    own = ("entity_id", "valid_from", "valid_to", "superseded_by", "sources", "last_said_at")
    said = {name: value for name, value in row.items() if name not in (*own, "extractor")}
    entity = Entity.model_validate({"statement": said, **{name: row[name] for name in own}})
    return entity, row["extractor"]


def _columns(app: str, user_id: str, said: Statement) -> dict[str, Any]:
    return {**said.model_dump(mode="python"), "app": app, "user_id": user_id, "owner": said.slot[1]}


async def _remove(conn: Connection, app: str, user_id: str, entity_ids: Iterable[uuid.UUID]) -> None:
    """Remove entities that begin no run any more: an earlier statement that agrees has arrived since."""
    gone = sorted(entity_ids)
    if gone:
        await conn.execute(
            """
            DELETE FROM lamina.entities
            WHERE app = %(app)s AND user_id = %(user_id)s AND entity_id = ANY(%(gone)s)
            """,
            {"app": app, "user_id": user_id, "gone": gone},
        )


async def _store(conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Write the entities. They come oldest first: a slot's former entity must end before the next one holds.

    An entity's id names the place of its first statement. Only a rebuild says something else there; the
    vector of the old words goes then.
    """
    if not rows:
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
                updated_at = now(),
                kind = excluded.kind,
                text = excluded.text,
                said_by = excluded.said_by,
                said_at = excluded.said_at,
                valid_from = excluded.valid_from,
                language = excluded.language,
                search = excluded.search,
                extractor = excluded.extractor,
                embedding = CASE WHEN e.text = excluded.text THEN e.embedding END,
                embedding_model = CASE WHEN e.text = excluded.text THEN e.embedding_model END
            """,
            rows,
        )


def _row(app: str, user_id: str, entity: Entity, extractor: str) -> dict[str, Any]:
    said = entity.statement
    return {
        **_columns(app, user_id, said),
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
