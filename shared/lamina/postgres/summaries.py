"""Rolling summaries in the database."""

import uuid
from collections.abc import Sequence

from lamina import strict_json
from lamina.errors import StaleVersion
from lamina.forgetting import Tombstones
from lamina.model import SessionKey, Summary, SummaryLine, Turn
from lamina.postgres.database import Database, Query
from lamina.postgres.processed import mark
from lamina.postgres.tombstones import enter, places_of, tombstones_query
from lamina.postgres.turn_log import lock_session, log_turns, turn_of

CONSUMER = "summarizer"


def lines_of(text: str) -> tuple[SummaryLine, ...]:
    """The lines of a `lines::text` column."""
    return tuple(SummaryLine.model_validate(line) for line in strict_json.loads(text))


def text_of(lines: Sequence[SummaryLine]) -> str:
    """The lines as ASCII JSON for a `json` column, which keeps what a `text` column would refuse."""
    return strict_json.dumps([line.model_dump(mode="json") for line in lines]).decode("ascii")


def latest_query(session: SessionKey, previous_session_id: str | None) -> Query:
    """At most one row (inherited, version, lines, model): the session's own latest summary, else the one of
    the nearest session before it that has any."""
    return (
        """
        SELECT c.depth > 0 AS inherited, latest.version, latest.lines::text, latest.model
        FROM lamina.lineage(%(app)s, %(user_id)s, %(session_id)s, %(previous)s) AS c
        CROSS JOIN LATERAL (
            SELECT y.version, y.lines, y.model
            FROM lamina.summaries AS y
            WHERE y.app = %(app)s AND y.user_id = %(user_id)s AND y.session_id = c.session_id
            ORDER BY y.version DESC
            LIMIT 1
        ) AS latest
        ORDER BY c.depth
        LIMIT 1
        """,
        {**session.model_dump(), "previous": previous_session_id},
    )


class PostgresSummaries:
    """The SummaryStore of production."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def latest(
        self, session: SessionKey, previous_session_id: str | None, project_id: str | None
    ) -> Summary:
        """See `SummaryStore.latest`."""
        # In this order: lines with a generation older than themselves are refused, the reverse would not be.
        stones, rows = await self._database.read(
            session.app,
            session.user_id,
            [
                tombstones_query(session.app, session.user_id),
                latest_query(session, previous_session_id),
            ],
        )
        generation = Tombstones.of_rows(session.app, session.user_id, stones).generation
        if not rows:
            return Summary(session=session, version=0, generation=generation)
        [row] = rows
        latest = Summary(
            session=session,
            version=row["version"],
            lines=lines_of(row["lines"]),
            model=row["model"],
            generation=generation,
        )
        return latest.inherited_by(session, project_id) if row["inherited"] else latest

    async def covered(self, session: SessionKey, turn_ids: Sequence[str]) -> frozenset[str]:
        """Which of these turns a committed summary covers."""
        query: Query = (
            """
            SELECT turn_id
            FROM lamina.summary_turns
            WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
              AND turn_id = ANY(%(turn_ids)s)
            """,
            {**session.model_dump(), "turn_ids": list(turn_ids)},
        )
        [rows] = await self._database.read(session.app, session.user_id, [query])
        return frozenset(row["turn_id"] for row in rows)

    async def uncovered(self, session: SessionKey, *, beside: Sequence[str] = ()) -> Sequence[Turn]:
        """See `SummaryStore.uncovered`."""
        query: Query = (
            """
            SELECT t.header::text, t.events::text
            FROM lamina.turns AS t
            WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = %(session_id)s
              AND t.turn_id <> ALL(%(beside)s::text[])
              AND NOT EXISTS (
                  SELECT FROM lamina.summary_turns AS c
                  WHERE c.app = %(app)s AND c.user_id = %(user_id)s AND c.session_id = %(session_id)s
                    AND c.turn_id = t.turn_id
              )
            ORDER BY t.occurred_at, t.turn_id
            """,
            {**session.model_dump(), "beside": list(beside)},
        )
        [rows] = await self._database.read(session.app, session.user_id, [query])
        return [turn_of(row) for row in rows]

    async def is_set_aside(self, session: SessionKey, turn_id: str) -> bool:
        """See `SummaryStore.is_set_aside`."""
        query: Query = (
            """
            SELECT FROM lamina.summary_turns
            WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
              AND turn_id = %(turn_id)s AND set_aside
            """,
            {**session.model_dump(), "turn_id": turn_id},
        )
        [rows] = await self._database.read(session.app, session.user_id, [query])
        return bool(rows)

    async def forgotten(self, turns: Sequence[Turn]) -> frozenset[str]:
        """See `SummaryStore.forgotten`."""
        if not turns:
            return frozenset()
        app, user_id = turns[0].app, turns[0].user_id
        query = tombstones_query(app, user_id, places_of(turns))
        [rows] = await self._database.read(app, user_id, [query])
        tombstones = Tombstones.of_rows(app, user_id, rows)
        return frozenset(turn.turn_id for turn in turns if tombstones.forgets(turn))

    async def commit(
        self, summary: Summary, turns: Sequence[Turn], event_id: uuid.UUID, *, set_aside: Sequence[str] = ()
    ) -> Summary:
        """See `SummaryStore.commit`. StaleVersion where another was faster."""
        session = summary.session
        async with self._database.as_user(session.app, session.user_id) as conn:
            tombstones = await enter(conn, session.app, session.user_id, places_of(turns))
            if summary.generation != tombstones.generation:
                raise StaleVersion("something of the user was forgotten meanwhile")
            tombstones.refuse(*turns)
            summary = summary.model_copy(update={"lines": tombstones.kept_lines(summary.lines)})
            await lock_session(conn, session)
            await log_turns(conn, session, turns)
            inserted = await conn.execute(
                """
                INSERT INTO lamina.summaries (app, user_id, session_id, version, lines, model, event_id)
                SELECT %(app)s, %(user_id)s, %(session_id)s, %(version)s, %(lines)s::json, %(model)s,
                       %(event_id)s
                WHERE %(version)s = 1 + (
                    SELECT coalesce(max(y.version), 0)
                    FROM lamina.summaries AS y
                    WHERE y.app = %(app)s AND y.user_id = %(user_id)s AND y.session_id = %(session_id)s
                )
                RETURNING version
                """,
                {
                    **session.model_dump(),
                    "version": summary.version,
                    "lines": text_of(summary.lines),
                    "model": summary.model,
                    "event_id": event_id,
                },
            )
            if await inserted.fetchone() is None:
                raise StaleVersion(f"summary {summary.version} is not the one after the latest")
            covered = await conn.execute(
                """
                INSERT INTO lamina.summary_turns AS s (app, user_id, session_id, turn_id, version, set_aside)
                SELECT %(app)s, %(user_id)s, %(session_id)s, turn_id, %(version)s,
                       turn_id = ANY(%(set_aside)s)
                FROM unnest(%(turn_ids)s::text[]) AS turn_id
                ON CONFLICT ON CONSTRAINT summary_covers_turn_once DO UPDATE
                SET version = excluded.version, set_aside = excluded.set_aside
                WHERE s.set_aside
                RETURNING s.turn_id
                """,
                {
                    **session.model_dump(),
                    "version": summary.version,
                    "turn_ids": [turn.turn_id for turn in turns],
                    "set_aside": list(set_aside),
                },
            )
            if len(await covered.fetchall()) < len(turns):
                raise StaleVersion("another worker was faster: a turn is covered already")
            await mark(conn, CONSUMER, session.app, session.user_id, event_id)
        return summary
