"""Compactions in the database."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from lamina.errors import NotFound, StaleVersion
from lamina.events import CompactionRequested
from lamina.language import detect
from lamina.model import derived_id
from lamina.ports import CompactionBatch, Consolidation, OldEpisode
from lamina.postgres.database import Connection, Database, Query
from lamina.postgres.processed import mark, result_of
from lamina.postgres.summaries import text_of
from lamina.postgres.tombstones import enter
from lamina.postgres.turn_log import lock
from lamina.recall.words import searchable, text_search_config
from lamina.settings import Settings

CONSUMER = "compactor"


class PostgresCompactions:
    """The CompactionStore of production."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    async def plan(self, before: datetime) -> Sequence[CompactionRequested]:
        """See `CompactionStore.plan`. Keys only: no content crosses users."""
        async with self._database.as_nobody() as conn:
            found = await conn.execute(
                """
                SELECT app, user_id, project_id
                FROM lamina.plan_compactions(%(before)s)
                ORDER BY app, user_id, project_id NULLS FIRST
                """,
                {"before": before},
            )
            return [CompactionRequested(**row, before=before) for row in await found.fetchall()]

    async def batch(self, request: CompactionRequested, size: int) -> CompactionBatch:
        """See `CompactionStore.batch`."""
        # Each turn has a chunk at least: one turn more than `size` tells whether any would stay behind.
        query: Query = (
            """
            WITH candidates AS (
                SELECT e.*
                FROM lamina.episodes AS e
                WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.archived_by IS NULL
                  AND e.project_id IS NOT DISTINCT FROM %(project_id)s AND e.occurred_at < %(before)s
                  AND NOT EXISTS (  -- an undo lasts: what it brought back is not taken again
                      SELECT FROM lamina.compaction_episodes AS undone
                      WHERE undone.app = e.app AND undone.user_id = e.user_id
                        AND undone.episode_id = e.episode_id
                  )
            ),
            old AS (
                SELECT session_id, turn_id, occurred_at, count(*) AS chunks
                FROM candidates
                GROUP BY occurred_at, session_id, turn_id
                ORDER BY occurred_at, session_id, turn_id
                LIMIT %(size)s + 1
            ),
            counted AS (
                SELECT session_id, turn_id, occurred_at,
                       sum(chunks) OVER (ORDER BY occurred_at, session_id, turn_id) - chunks AS ahead
                FROM old
            )
            SELECT e.episode_id, e.session_id, e.turn_id, e.speaker, e.text, e.occurred_at,
                   EXISTS (SELECT FROM counted WHERE ahead >= %(size)s) AS more
            FROM counted AS c
            JOIN candidates AS e ON e.session_id = c.session_id AND e.turn_id = c.turn_id
            WHERE c.ahead < %(size)s
            ORDER BY e.occurred_at, e.session_id, e.turn_id, e.ordinal
            """,
            {**_keys(request), "size": size},
        )
        [rows] = await self._database.read(request.app, request.user_id, [query])
        more = bool(rows) and rows[0]["more"]
        return CompactionBatch(
            episodes=tuple(OldEpisode(**{k: v for k, v in row.items() if k != "more"}) for row in rows),
            more=more,
        )

    async def apply(
        self, request: CompactionRequested, result: Consolidation, event_id: uuid.UUID
    ) -> uuid.UUID:
        """Store the consolidation, archive what it covers, and the event, in one transaction.

        StaleVersion where an episode that it covers has been archived meanwhile (an undo does not free it
        again), or is none of the request's; also where one of them was forgotten.
        """
        async with self._database.as_user(request.app, request.user_id) as conn:
            tombstones = await enter(conn, request.app, request.user_id)
            result = replace(result, lines=tombstones.kept_lines(result.lines))
            await lock(conn, "compactions", request.app, request.user_id)
            done = await result_of(conn, CONSUMER, request.app, request.user_id, event_id)
            if done is not None:
                return uuid.UUID(done)
            compaction_id = derived_id("compaction", request.app, request.user_id, str(event_id))
            covers = sorted(set(result.covers))
            await _archive(conn, request, compaction_id, covers)
            await _insert(conn, request, compaction_id, result, event_id)
            await _link(conn, request, compaction_id, result, covers)
            await mark(conn, CONSUMER, request.app, request.user_id, event_id, result=str(compaction_id))
        return compaction_id

    async def applied(self, request: CompactionRequested) -> uuid.UUID | None:
        """The compaction that this request led to; None where it has not been applied."""
        async with self._database.as_user(request.app, request.user_id) as conn:
            done = await result_of(conn, CONSUMER, request.app, request.user_id, request.event_id())
        return None if done is None else uuid.UUID(done)

    async def of_user(self, app: str, user_id: str) -> list[dict[str, Any]]:
        """compaction_id, project_id, created_at, episodes and undone_at of each, newest first."""
        query: Query = (
            """
            SELECT c.compaction_id, c.project_id, c.created_at, c.undone_at,
                   (SELECT count(*) FROM lamina.compaction_episodes AS e
                    WHERE e.app = c.app AND e.user_id = c.user_id
                      AND e.compaction_id = c.compaction_id) AS episodes
            FROM lamina.compactions AS c
            WHERE c.app = %(app)s AND c.user_id = %(user_id)s
            ORDER BY c.created_at DESC, c.compaction_id
            """,
            {"app": app, "user_id": user_id},
        )
        [rows] = await self._database.read(app, user_id, [query])
        return rows

    async def undo(self, app: str, user_id: str, compaction_id: uuid.UUID) -> int:
        """Bring the archived episodes back and retire the consolidation. Gives how many came back.

        Undoing twice brings nothing more back. NotFound where the user has no such compaction.
        """
        keys = {"app": app, "user_id": user_id, "compaction_id": compaction_id}
        async with self._database.as_user(app, user_id) as conn:
            await lock(conn, "compactions", app, user_id)
            found = await conn.execute(
                """
                UPDATE lamina.compactions
                SET undone_at = coalesce(undone_at, now())
                WHERE app = %(app)s AND user_id = %(user_id)s AND compaction_id = %(compaction_id)s
                RETURNING compaction_id
                """,
                keys,
            )
            if await found.fetchone() is None:
                raise NotFound(f"there is no compaction {compaction_id}")
            back = await conn.execute(
                """
                UPDATE lamina.episodes
                SET archived_by = NULL
                WHERE app = %(app)s AND user_id = %(user_id)s AND archived_by = %(compaction_id)s
                RETURNING episode_id
                """,
                keys,
            )
            await conn.execute(
                """
                DELETE FROM lamina.compaction_lines
                WHERE app = %(app)s AND user_id = %(user_id)s AND compaction_id = %(compaction_id)s
                """,
                keys,
            )
            return len(await back.fetchall())

    async def expire(self, now: datetime) -> dict[str, int]:
        """Delete what its retention setting allows; counts by table. A setting that is None keeps all."""

        def ago(days: float | None) -> datetime | None:
            return None if days is None else now - timedelta(days=days)

        async with self._database.as_nobody() as conn:
            counts = await conn.execute(
                """
                SELECT episodes, statements, entities, processed_events,
                       lamina.expire_dead_letters(%(processed)s::timestamptz) AS dead_letters
                FROM lamina.expire_memory(
                    %(archived)s::timestamptz, %(session)s::timestamptz, %(processed)s::timestamptz
                )
                """,
                {
                    "archived": ago(self._settings.archive_days),
                    "session": ago(self._settings.session_days),
                    "processed": ago(self._settings.processed_days),
                },
            )
            return dict(await counts.fetchone() or {})


def _keys(request: CompactionRequested) -> dict[str, Any]:
    return {
        "app": request.app,
        "user_id": request.user_id,
        "project_id": request.project_id,
        "before": request.before,
    }


async def _archive(
    conn: Connection, request: CompactionRequested, compaction_id: uuid.UUID, covers: Sequence[uuid.UUID]
) -> None:
    archived = await conn.execute(
        """
        UPDATE lamina.episodes AS e
        SET archived_by = %(compaction_id)s
        WHERE app = %(app)s AND user_id = %(user_id)s AND episode_id = ANY(%(covers)s)
          AND archived_by IS NULL
          AND project_id IS NOT DISTINCT FROM %(project_id)s AND occurred_at < %(before)s
          AND NOT EXISTS (
              SELECT FROM lamina.compaction_episodes AS undone
              WHERE undone.app = e.app AND undone.user_id = e.user_id AND undone.episode_id = e.episode_id
          )
        RETURNING episode_id
        """,
        {**_keys(request), "compaction_id": compaction_id, "covers": list(covers)},
    )
    count = len(await archived.fetchall())
    if count != len(covers):
        raise StaleVersion(f"{len(covers) - count} of {len(covers)} episodes are no longer there to cover")


async def _insert(
    conn: Connection,
    request: CompactionRequested,
    compaction_id: uuid.UUID,
    result: Consolidation,
    event_id: uuid.UUID,
) -> None:
    await conn.execute(
        """
        INSERT INTO lamina.compactions (
            compaction_id, app, user_id, project_id, before, lines, model, event_id
        ) VALUES (
            %(compaction_id)s, %(app)s, %(user_id)s, %(project_id)s, %(before)s, %(lines)s::json, %(model)s,
            %(event_id)s
        )
        """,
        {
            **_keys(request),
            "compaction_id": compaction_id,
            "lines": text_of(result.lines),
            "model": result.model,
            "event_id": event_id,
        },
    )


async def _link(
    conn: Connection,
    request: CompactionRequested,
    compaction_id: uuid.UUID,
    result: Consolidation,
    covers: Sequence[uuid.UUID],
) -> None:
    """Name what is covered, and make the lines searchable under the session of the turn each stands on."""
    keys = {**_keys(request), "compaction_id": compaction_id, "covers": list(covers)}
    await conn.execute(
        """
        INSERT INTO lamina.compaction_episodes (app, user_id, compaction_id, episode_id)
        SELECT %(app)s, %(user_id)s, %(compaction_id)s, episode_id
        FROM unnest(%(covers)s::uuid[]) AS episode_id
        """,
        keys,
    )
    languages = [detect(line.text) for line in result.lines]
    await conn.execute(
        """
        INSERT INTO lamina.compaction_lines (
            app, user_id, compaction_id, ordinal, project_id, session_id, turn_id, kind, text, language,
            occurred_at, search
        )
        SELECT %(app)s, %(user_id)s, %(compaction_id)s, line.ordinal - 1, %(project_id)s,
               (SELECT e.session_id
                FROM lamina.episodes AS e
                WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.episode_id = ANY(%(covers)s)
                  AND e.turn_id = line.turn_id
                ORDER BY e.occurred_at <> line.at, e.occurred_at, e.session_id
                LIMIT 1),
               line.turn_id, line.kind, line.text, line.language, line.at,
               setweight(to_tsvector(line.config::regconfig, line.words), 'A')
        FROM unnest(
            %(turn_ids)s::text[], %(kinds)s::text[], %(texts)s::text[], %(languages)s::text[],
            %(moments)s::timestamptz[], %(configs)s::text[], %(words)s::text[]
        ) WITH ORDINALITY AS line (turn_id, kind, text, language, at, config, words, ordinal)
        """,
        {
            **keys,
            "turn_ids": [line.turn_id for line in result.lines],
            "kinds": [line.kind for line in result.lines],
            "texts": [line.text for line in result.lines],
            "languages": languages,
            "moments": [line.at for line in result.lines],
            "configs": [text_search_config(language) for language in languages],
            "words": [
                searchable(line.text, language)
                for line, language in zip(result.lines, languages, strict=True)
            ],
        },
    )
