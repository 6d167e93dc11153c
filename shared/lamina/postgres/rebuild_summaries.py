"""Puts lines that were summarised again in the place of the old ones, as a version of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lamina.errors import StaleVersion
from lamina.model import SessionKey, Summary, SummaryLine, Turn
from lamina.postgres.database import Connection, Database, Query
from lamina.postgres.rebuilds import Rebuild, end, hold
from lamina.postgres.summaries import PostgresSummaries, lines_of, text_of
from lamina.postgres.tombstones import enter
from lamina.postgres.turn_log import lock_session, turn_of


@dataclass(frozen=True)
class CoveredTurn:
    """A turn that a session's summary covers."""

    turn_id: str
    occurred_at: datetime
    version: int
    """The version that took it over."""
    set_aside: bool
    """The lines go without it."""


@dataclass(frozen=True)
class Session:
    """A session of the user's."""

    session_id: str
    previous_session_id: str | None
    project_id: str | None
    version: int
    """Of its latest summary; 0 where it has none."""


@dataclass(frozen=True)
class Remade:
    """A session's summary, made again."""

    session_id: str
    version: int
    """The version whose turns the lines go through."""
    lines: tuple[SummaryLine, ...]
    taken: tuple[str, ...]
    """Turns that had been set aside, and are in the lines now."""


class PostgresRebuiltSummaries:
    """What the `summaries` stage of a rebuild reads and writes of the memory in use."""

    def __init__(self, database: Database, rebuild: Rebuild) -> None:
        self._database = database
        self._rebuild = rebuild
        self._summaries = PostgresSummaries(database)

    async def sessions(self) -> list[Session]:
        """All of the user's, the oldest first."""
        query: Query = (
            """
            SELECT s.session_id, s.previous_session_id, s.project_id,
                   coalesce(
                       (SELECT max(y.version)
                        FROM lamina.summaries AS y
                        WHERE y.app = s.app AND y.user_id = s.user_id AND y.session_id = s.session_id),
                       0
                   ) AS version
            FROM lamina.sessions AS s
            WHERE s.app = %(app)s AND s.user_id = %(user_id)s
            ORDER BY s.first_seen, s.session_id
            """,
            self._rebuild.keys,
        )
        [rows] = await self._database.read(self._rebuild.app, self._rebuild.user_id, [query])
        return [Session(**row) for row in rows]

    async def latest(self, session_id: str) -> Summary:
        """A session's own latest summary."""
        return await self._summaries.latest(self._rebuild.session(session_id), None, None)

    async def covered(self, session_id: str) -> tuple[int, list[CoveredTurn]]:
        """The latest version, and the turns of the log that it and those before it cover."""
        keys = {**self._rebuild.keys, "session_id": session_id}
        version: Query = (
            """
            SELECT coalesce(max(version), 0) AS version
            FROM lamina.summaries
            WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
            """,
            keys,
        )
        turns: Query = (
            """
            SELECT c.turn_id, t.occurred_at, c.version, c.set_aside
            FROM lamina.summary_turns AS c
            JOIN lamina.turns AS t USING (app, user_id, session_id, turn_id)
            WHERE c.app = %(app)s AND c.user_id = %(user_id)s AND c.session_id = %(session_id)s
            ORDER BY t.occurred_at, c.turn_id
            """,
            keys,
        )
        # In this order: what is covered is then covered by this version or, at worst, by a later one.
        [found], rows = await self._database.read(self._rebuild.app, self._rebuild.user_id, [version, turns])
        covered = [CoveredTurn(**row) for row in rows]
        return found["version"], [turn for turn in covered if turn.version <= found["version"]]

    async def turns(self, session_id: str, turn_ids: Sequence[str]) -> list[Turn]:
        """These turns of the log, oldest first; those forgotten meanwhile are left out."""
        query: Query = (
            """
            SELECT header::text, events::text
            FROM lamina.turns
            WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
              AND turn_id = ANY(%(turn_ids)s)
            ORDER BY occurred_at, turn_id
            """,
            {**self._rebuild.keys, "session_id": session_id, "turn_ids": list(turn_ids)},
        )
        [rows] = await self._database.read(self._rebuild.app, self._rebuild.user_id, [query])
        return [turn_of(row) for row in rows]

    async def swap(self, remade: Sequence[Remade]) -> None:
        """Commit each session's lines as its next version, in one transaction; what is covered stays so.

        StaleVersion where a session has moved on since. Lines that are as they were make no version.
        """
        rebuild = self._rebuild
        async with self._database.as_user(rebuild.app, rebuild.user_id) as conn:
            await enter(conn, rebuild.app, rebuild.user_id)
            for each in sorted(remade, key=lambda one: one.session_id):
                await lock_session(conn, rebuild.session(each.session_id))
            await hold(conn, rebuild)
            for each in remade:
                await self._swap_session(conn, each)
            # Kept until the buffers' caches have followed: see `finish`.
            await end(conn, rebuild, "swapped", keep_items=True)

    async def unfinished(self) -> list[SessionKey]:
        """The sessions whose cached summary has yet to follow a swap."""
        query: Query = (
            """
            SELECT DISTINCT i.session_id
            FROM lamina.rebuild_items AS i
            JOIN lamina.rebuilds AS r USING (rebuild_id)
            WHERE r.app = %(app)s AND r.user_id = %(user_id)s AND r.stage = 'summaries'
              AND r.state = 'swapped'
            ORDER BY i.session_id
            """,
            self._rebuild.keys,
        )
        [rows] = await self._database.read(self._rebuild.app, self._rebuild.user_id, [query])
        return [self._rebuild.session(row["session_id"]) for row in rows]

    async def finish(self) -> None:
        """The caches have followed."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            await conn.execute(
                """
                DELETE FROM lamina.rebuild_items AS i
                USING lamina.rebuilds AS r
                WHERE r.rebuild_id = i.rebuild_id AND r.app = %(app)s AND r.user_id = %(user_id)s
                  AND r.stage = 'summaries' AND r.state = 'swapped'
                """,
                self._rebuild.keys,
            )

    async def _swap_session(self, conn: Connection, remade: Remade) -> None:
        keys: dict[str, Any] = {
            **self._rebuild.keys,
            "session_id": remade.session_id,
            "version": remade.version,
            "model": self._rebuild.maker,
        }
        found = await conn.execute(
            """
            SELECT y.version, y.lines::text, y.model
            FROM lamina.summaries AS y
            WHERE y.app = %(app)s AND y.user_id = %(user_id)s AND y.session_id = %(session_id)s
            ORDER BY y.version DESC
            LIMIT 1
            """,
            keys,
        )
        row = await found.fetchone()
        if row is None or row["version"] != remade.version:
            raise StaleVersion(f"session {remade.session_id} moved on meanwhile")
        if (lines_of(row["lines"]), row["model"]) != (remade.lines, self._rebuild.maker):
            await conn.execute(
                """
                INSERT INTO lamina.summaries (app, user_id, session_id, version, lines, model, event_id)
                VALUES (
                    %(app)s, %(user_id)s, %(session_id)s, %(version)s + 1, %(lines)s::json, %(model)s,
                    %(rebuild_id)s
                )
                """,
                {**keys, "lines": text_of(remade.lines)},
            )
        await conn.execute(
            """
            UPDATE lamina.summary_turns
            SET set_aside = false
            WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s AND set_aside
              AND turn_id = ANY(%(taken)s)
            """,
            {**keys, "taken": list(remade.taken)},
        )
