"""Forgetting in the database: one transaction writes the tombstone and deletes, with nobody else writing.

What mixed forgotten with kept turns (summaries, compactions, neighbours' words, entities) is deleted and
derived again from what is left, never patched.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from lamina.events import TurnRecorded
from lamina.forgetting import Selection, Tombstones
from lamina.model import SessionKey, Summary, Turn
from lamina.postgres.database import Connection, Database
from lamina.postgres.doomed import Doomed, count, doomed, drop_rows
from lamina.postgres.forgetting_derived import (
    drop_compactions,
    drop_episodes,
    drop_statements,
    drop_summaries,
)
from lamina.postgres.forgetting_entity import forget_entity
from lamina.postgres.summaries import lines_of
from lamina.postgres.tombstones import enter_alone, tombstones_of, write_tombstones
from lamina.postgres.turn_log import derive_sessions, lock, turn_of


@dataclass
class Gone:
    """What a forgetting took away."""

    forgotten_at: datetime
    tombstones: Tombstones = field(default_factory=Tombstones)
    """All of the user's, the new ones among them."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Rows by table."""
    stays: Counter[str] = field(default_factory=Counter[str])
    """What was left on purpose though one might look for it, by what it is."""


class PostgresForgetting:
    """Acts for an operator, on one user's memory at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def forget(self, selection: Selection, *, act: bool = True) -> Gone:
        """Forget for good. `act` False takes it all back at the end: the counts are those of the real thing.

        NotFound where the user has, and had, no such entity.
        """
        app, user_id = selection.app, selection.user_id
        async with self._database.as_user(app, user_id) as conn:
            stones = await enter_alone(conn, app, user_id)
            # Who works on a whole user without `enter` takes these first, and then holds its rebuild.
            await lock(conn, "entities", app, user_id)
            await lock(conn, "compactions", app, user_id)
            gone = Gone(await _moment(conn, selection))
            gone.counts["rebuilds"] = await _drop_rebuilds(conn, selection)
            generation = stones.generation + 1
            if selection.scope == "entity":
                counts, stays = await forget_entity(conn, selection, gone.forgotten_at, generation)
                gone.counts.update(counts)
                gone.stays.update(stays)
            else:
                await _forget_turns(conn, selection, generation, gone)
            gone.tombstones = await tombstones_of(conn, app, user_id, None)
            if not act:
                await conn.rollback()
        return gone

    async def has_summary(self, session: SessionKey, cached: Summary | None) -> bool:
        """Whether the database has this summary of the session; None: whether it has any."""
        async with self._database.as_user(session.app, session.user_id) as conn:
            found = await conn.execute(
                """
                SELECT lines::text
                FROM lamina.summaries
                WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
                  AND (%(version)s::int IS NULL OR version = %(version)s)
                LIMIT 1
                """,
                {**session.model_dump(), "version": cached.version if cached else None},
            )
            row = await found.fetchone()
        return row is not None and (cached is None or lines_of(row["lines"]) == cached.lines)

    async def sessions(self, app: str, user_id: str) -> list[str]:
        """The sessions that the log knows of."""
        async with self._database.as_user(app, user_id) as conn:
            found = await conn.execute(
                """
                SELECT session_id
                FROM lamina.sessions
                WHERE app = %(app)s AND user_id = %(user_id)s
                ORDER BY session_id
                """,
                {"app": app, "user_id": user_id},
            )
            return [row["session_id"] for row in await found.fetchall()]

    async def due(self, app: str, user_id: str, trigger: int) -> list[Turn]:
        """The latest turn of each session in which `trigger` turns wait for a summary."""
        async with self._database.as_user(app, user_id) as conn:
            found = await conn.execute(
                """
                SELECT latest.header::text, latest.events::text
                FROM (
                    SELECT t.session_id
                    FROM lamina.turns AS t
                    WHERE t.app = %(app)s AND t.user_id = %(user_id)s
                      AND NOT EXISTS (
                          SELECT FROM lamina.summary_turns AS c
                          WHERE c.app = t.app AND c.user_id = t.user_id AND c.session_id = t.session_id
                            AND c.turn_id = t.turn_id
                      )
                    GROUP BY t.session_id
                    HAVING count(*) >= %(trigger)s
                ) AS waiting
                CROSS JOIN LATERAL (
                    SELECT t.header, t.events
                    FROM lamina.turns AS t
                    WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = waiting.session_id
                    ORDER BY t.occurred_at DESC, t.turn_id DESC
                    LIMIT 1
                ) AS latest
                ORDER BY waiting.session_id
                """,
                {"app": app, "user_id": user_id, "trigger": trigger},
            )
            return [turn_of(row) for row in await found.fetchall()]


async def _forget_turns(conn: Connection, selection: Selection, generation: int, gone: Gone) -> None:
    going = await doomed(conn, selection, gone.forgotten_at)
    await _entomb(conn, going, generation)
    gone.counts["compactions"] = await drop_compactions(conn, going)
    gone.counts["episodes"] = await drop_episodes(conn, going)
    gone.counts["statements"], gone.counts["entities"] = await drop_statements(conn, going)
    gone.counts["summaries"] = await drop_summaries(conn, going)
    gone.counts["processed_events"] = await _drop_marks(conn, going)
    gone.counts["dead_letters"] = await _drop_letters(conn, going)
    gone.counts["turns"], gone.counts["sessions"] = await _drop_turns(conn, going)
    if selection.scope == "project":
        gone.stays["turns in its sessions that name no project"] = await count(
            conn,
            """
            SELECT count(*) AS n
            FROM lamina.turns
            WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = ANY(%(touched)s)
              AND project_id IS NULL
            """,
            going.keys,
        )


async def _moment(conn: Connection, selection: Selection) -> datetime:
    """Up to when it is forgotten: `before`, but never later than now that nobody else writes: what is still
    to be said is not forgotten."""
    found = await conn.execute(
        "SELECT least(%(before)s::timestamptz, clock_timestamp()) AS moment", {"before": selection.before}
    )
    [row] = await found.fetchall()
    return row["moment"]


async def _drop_rebuilds(conn: Connection, selection: Selection) -> int:
    """What a rebuild has in hand was made from what is forgotten.

    One that takes the memory's place at this moment is waited for: what it brings is found afterwards.
    """
    return await count(
        conn,
        """
        WITH gone AS (
            DELETE FROM lamina.rebuilds AS r
            WHERE r.app = %(app)s AND r.user_id = %(user_id)s
              AND (
                  r.ended_at IS NULL OR %(whole_user)s OR r.session_id = %(session)s
                  OR EXISTS (SELECT FROM lamina.rebuild_items AS i WHERE i.rebuild_id = r.rebuild_id)
              )
            RETURNING r.rebuild_id
        )
        SELECT count(*) AS n FROM gone
        """,
        {
            "app": selection.app,
            "user_id": selection.user_id,
            "session": selection.session_id,
            "whole_user": selection.scope == "user",
        },
    )


async def _entomb(conn: Connection, going: Doomed, generation: int) -> None:
    """Write the tombstone, and one for each turn, which may be published anew under a later date.

    A wider one replaces narrower.
    """
    chosen = going.selection
    places = zip(going.session_ids, going.turn_ids, strict=True)
    stones = [("turn", session, turn) for session, turn in places]
    stones.append((chosen.scope, chosen.session_id or chosen.project_id or "", ""))
    await write_tombstones(conn, chosen, stones, forgotten_at=going.forgotten_at, generation=generation)
    await conn.execute(
        """
        DELETE FROM lamina.tombstones
        WHERE app = %(app)s AND user_id = %(user_id)s AND forgotten_at <= %(forgotten_at)s
          AND ((%(scope)s = 'user' AND scope IN ('session', 'project', 'slot', 'words'))
               OR (%(scope)s = 'session' AND scope = 'words' AND owner = %(session)s))
        """,
        {**going.keys, "scope": chosen.scope, "forgotten_at": going.forgotten_at},
    )


async def _drop_marks(conn: Connection, going: Doomed) -> int:
    """Which events were done: an event's id is derived from its turn, whoever processed it."""
    event_ids = [
        TurnRecorded.id_of(going.selection.session(session_id), turn_id)
        for session_id, turn_id in zip(going.session_ids, going.turn_ids, strict=True)
    ]
    return await count(
        conn,
        """
        WITH gone AS (
            DELETE FROM lamina.processed_events
            WHERE app = %(app)s AND user_id = %(user_id)s
              AND (%(everything)s OR event_id = ANY(%(event_ids)s))
            RETURNING event_id
        )
        SELECT count(*) AS n FROM gone
        """,
        {**going.keys, "everything": going.everything, "event_ids": event_ids},
    )


async def _drop_letters(conn: Connection, going: Doomed) -> int:
    """Of the index; a letter's turn need not be in the log. What names no session may be of any."""
    named = await count(
        conn,
        """
        WITH gone AS (
            DELETE FROM lamina.dead_letters AS d
            WHERE d.app = %(app)s AND d.user_id = %(user_id)s AND %(project)s::text IS NULL
              AND (%(session)s::text IS NULL OR d.session_id = %(session)s)
              AND (%(before)s::timestamptz IS NULL OR coalesce(d.first_seen, d.parked_at) <= %(before)s)
            RETURNING d.turn_id
        )
        SELECT count(*) AS n FROM gone
        """,
        going.keys,
    )
    return named + await drop_rows(conn, "dead_letters", going.keys)


async def _drop_turns(conn: Connection, going: Doomed) -> tuple[int, int]:
    """The log itself. Gives how many turns and sessions."""
    turns = await drop_rows(conn, "turns", going.keys)
    chosen = going.selection
    return turns, await derive_sessions(conn, chosen.app, chosen.user_id, going.touched)
