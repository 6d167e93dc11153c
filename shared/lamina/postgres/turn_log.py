"""The log of turns, and the sessions that follow from it. Summaries and episodes both write it."""

from collections.abc import Sequence
from typing import Any

from psycopg.rows import DictRow

from lamina import strict_json
from lamina.events import TurnRecorded
from lamina.model import SessionKey, Turn, derived_id
from lamina.postgres.database import Connection


def turn_of(row: DictRow) -> Turn:
    """The turn of a row with `header::text` and `events::text`."""
    return Turn.model_validate(
        {**strict_json.loads(row["header"]), "events": strict_json.loads(row["events"])}
    )


async def lock(conn: Connection, *names: str) -> None:
    """Wait until nobody else works on what these names mean; held until the transaction ends."""
    await conn.execute("SELECT pg_advisory_xact_lock(%(key)s)", {"key": key_of(*names)})


def key_of(*names: str) -> int:
    """The number of an advisory lock."""
    return int.from_bytes(derived_id("lock", *names).bytes[:8], "big", signed=True)


async def lock_session(conn: Connection, session: SessionKey) -> None:
    """One writer of a session's turns at a time: what follows from them is derived from all of them."""
    await lock(conn, "session", session.app, session.user_id, session.session_id)


async def log_turns(conn: Connection, session: SessionKey, turns: Sequence[Turn]) -> None:
    """Write the session's turns that the log does not have, and what follows of the session itself.

    The caller holds the session's lock.
    """
    if not turns:
        return
    async with conn.cursor() as cursor:
        await cursor.executemany(
            """
            INSERT INTO lamina.turns (
                app, user_id, session_id, turn_id, project_id, previous_session_id, occurred_at,
                header, events, recorded_event
            ) VALUES (
                %(app)s, %(user_id)s, %(session_id)s, %(turn_id)s, %(project_id)s, %(previous_session_id)s,
                %(occurred_at)s, %(header)s::json, %(events)s::json, %(recorded_event)s
            )
            ON CONFLICT (app, user_id, session_id, turn_id) DO NOTHING
            """,
            [_row(turn) for turn in turns],
        )
    await _derive_session(conn, session, turns)


async def find_turn(conn: Connection, session: SessionKey, turn_id: str) -> Turn | None:
    """A turn from the log."""
    found = await conn.execute(
        """
        SELECT header::text, events::text
        FROM lamina.turns
        WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
          AND turn_id = %(turn_id)s
        """,
        {**session.model_dump(), "turn_id": turn_id},
    )
    row = await found.fetchone()
    return turn_of(row) if row else None


async def _derive_session(conn: Connection, session: SessionKey, turns: Sequence[Turn]) -> None:
    """The earliest turn that names a project or a predecessor decides, whatever order they arrive in.

    A name is looked for only when one of these turns has one; else what is known stands.
    """
    await conn.execute(
        """
        INSERT INTO lamina.sessions AS s (
            app, user_id, session_id, project_id, previous_session_id, first_seen
        )
        SELECT %(app)s, %(user_id)s, %(session_id)s,
               (SELECT t.project_id FROM lamina.turns AS t
                WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = %(session_id)s
                  AND t.project_id IS NOT NULL AND %(names_project)s
                ORDER BY t.occurred_at, t.turn_id LIMIT 1),
               (SELECT t.previous_session_id FROM lamina.turns AS t
                WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = %(session_id)s
                  AND t.previous_session_id IS NOT NULL AND %(names_previous)s
                ORDER BY t.occurred_at, t.turn_id LIMIT 1),
               (SELECT t.occurred_at FROM lamina.turns AS t
                WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = %(session_id)s
                ORDER BY t.occurred_at LIMIT 1)
        ON CONFLICT (app, user_id, session_id) DO UPDATE
        SET project_id = coalesce(excluded.project_id, s.project_id),
            previous_session_id = coalesce(excluded.previous_session_id, s.previous_session_id),
            first_seen = excluded.first_seen
        WHERE s.first_seen <> excluded.first_seen
           OR s.project_id IS DISTINCT FROM coalesce(excluded.project_id, s.project_id)
           OR s.previous_session_id
              IS DISTINCT FROM coalesce(excluded.previous_session_id, s.previous_session_id)
        """,
        {
            **session.model_dump(),
            "names_project": any(turn.project_id for turn in turns),
            "names_previous": any(turn.previous_session_id for turn in turns),
        },
    )


async def derive_sessions(conn: Connection, app: str, user_id: str, session_ids: Sequence[str]) -> int:
    """Bring these sessions in line with the turns that are left of them. Gives how many went.

    Nobody else writes the user's turns meanwhile.
    """
    keys = {"app": app, "user_id": user_id, "session_ids": list(session_ids)}
    await conn.execute(
        """
        UPDATE lamina.sessions AS s
        SET first_seen = left_over.first_seen,
            project_id = left_over.project_id,
            previous_session_id = left_over.previous_session_id
        FROM (
            SELECT t.session_id,
                   min(t.occurred_at) AS first_seen,
                   (array_agg(t.project_id ORDER BY t.occurred_at, t.turn_id)
                       FILTER (WHERE t.project_id IS NOT NULL))[1] AS project_id,
                   (array_agg(t.previous_session_id ORDER BY t.occurred_at, t.turn_id)
                       FILTER (WHERE t.previous_session_id IS NOT NULL))[1] AS previous_session_id
            FROM lamina.turns AS t
            WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = ANY(%(session_ids)s)
            GROUP BY t.session_id
        ) AS left_over
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s AND s.session_id = left_over.session_id
        """,
        keys,
    )
    gone = await conn.execute(
        """
        DELETE FROM lamina.sessions AS s
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s AND s.session_id = ANY(%(session_ids)s)
          AND NOT EXISTS (
              SELECT FROM lamina.turns AS t
              WHERE t.app = s.app AND t.user_id = s.user_id AND t.session_id = s.session_id
          )
        RETURNING s.session_id
        """,
        keys,
    )
    return len(await gone.fetchall())


def _row(turn: Turn) -> dict[str, Any]:
    return {
        **turn.session.model_dump(),
        "turn_id": turn.turn_id,
        "project_id": turn.project_id,
        "previous_session_id": turn.previous_session_id,
        "occurred_at": turn.occurred_at,
        "header": strict_json.dumps(turn.header()).decode("ascii"),
        "events": strict_json.dumps([event.root for event in turn.events]).decode("ascii"),
        "recorded_event": TurnRecorded(turn=turn).event_id(),
    }
