"""What a forgetting takes: found once, at the beginning of its transaction."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import sql

from lamina.forgetting import Selection
from lamina.postgres.database import Connection


@dataclass(frozen=True)
class Doomed:
    """The turns that go, and whose summaries held something of them."""

    selection: Selection
    forgotten_at: datetime
    session_ids: tuple[str, ...]
    turn_ids: tuple[str, ...]
    """The turn of the session at the same place of `session_ids`."""
    occurred: tuple[datetime, ...]
    touched: tuple[str, ...]
    """Sessions that hold one of the turns, each once."""
    mixed: tuple[str, ...]
    """Sessions whose summary holds something of one, as its own or by inheritance."""

    @property
    def keys(self) -> dict[str, Any]:
        """Parameters of every statement."""
        chosen = self.selection
        return {
            "app": chosen.app,
            "user_id": chosen.user_id,
            "session": chosen.session_id,
            "project": chosen.project_id,
            "before": chosen.before,
            "session_ids": list(self.session_ids),
            "turn_ids": list(self.turn_ids),
            "touched": list(self.touched),
            "mixed": list(self.mixed),
        }

    @property
    def everything(self) -> bool:
        """Whether nothing of the user stays."""
        return self.selection.scope == "user" and self.selection.before is None


async def count(conn: Connection, query: LiteralString | sql.Composed, keys: Mapping[str, Any]) -> int:
    """The number that a statement of the form `… SELECT count(*) AS n` gives."""
    [row] = await (await conn.execute(query, keys)).fetchall()
    return row["n"]


async def drop_rows(conn: Connection, table: LiteralString, keys: Mapping[str, Any]) -> int:
    """Delete what a table of the schema has of the doomed turns. Gives how many rows."""
    query = sql.SQL(
        """
        WITH gone AS (
            DELETE FROM lamina.{table} AS r
            USING unnest(%(session_ids)s::text[], %(turn_ids)s::text[]) AS d (session_id, turn_id)
            WHERE r.app = %(app)s AND r.user_id = %(user_id)s
              AND r.session_id = d.session_id AND r.turn_id = d.turn_id
            RETURNING r.turn_id
        )
        SELECT count(*) AS n FROM gone
        """
    ).format(table=sql.Identifier(table))
    return await count(conn, query, keys)


async def doomed(conn: Connection, selection: Selection, forgotten_at: datetime) -> Doomed:
    """Find what goes. `forgotten_at`: for the tombstone; what is there is taken whatever its date, unless
    the selection says `before`."""
    keys = {
        "app": selection.app,
        "user_id": selection.user_id,
        "session": selection.session_id,
        "project": selection.project_id,
        "before": selection.before,
    }
    found = await conn.execute(
        """
        SELECT t.session_id, t.turn_id, t.occurred_at
        FROM lamina.turns AS t
        WHERE t.app = %(app)s AND t.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR t.session_id = %(session)s)
          AND (%(project)s::text IS NULL OR t.project_id = %(project)s)
          AND (%(before)s::timestamptz IS NULL OR t.occurred_at <= %(before)s)
        ORDER BY t.session_id, t.occurred_at, t.turn_id
        """,
        keys,
    )
    rows = await found.fetchall()
    session_ids = tuple(row["session_id"] for row in rows)
    turn_ids = tuple(row["turn_id"] for row in rows)
    return Doomed(
        selection=selection,
        forgotten_at=forgotten_at,
        session_ids=session_ids,
        turn_ids=turn_ids,
        occurred=tuple(row["occurred_at"] for row in rows),
        touched=tuple(dict.fromkeys(session_ids)),
        mixed=await _mixed(conn, {**keys, "session_ids": list(session_ids), "turn_ids": list(turn_ids)}),
    )


async def _mixed(conn: Connection, keys: dict[str, Any]) -> tuple[str, ...]:
    """The sessions whose summary covers one of the turns, and all that may have inherited from them.

    A session may have begun from any predecessor that one of its turns names: another turn, dated earlier,
    may have changed since then which of them counts.
    """
    found = await conn.execute(
        """
        WITH RECURSIVE mixed AS (
            SELECT c.session_id
            FROM lamina.summary_turns AS c
            JOIN unnest(%(session_ids)s::text[], %(turn_ids)s::text[]) AS gone (session_id, turn_id)
                USING (session_id, turn_id)
            WHERE c.app = %(app)s AND c.user_id = %(user_id)s
            UNION
            SELECT n.session_id
            FROM mixed AS m
            JOIN (
                SELECT s.session_id, s.previous_session_id
                FROM lamina.sessions AS s
                WHERE s.app = %(app)s AND s.user_id = %(user_id)s
                UNION
                SELECT t.session_id, t.previous_session_id
                FROM lamina.turns AS t
                WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.previous_session_id IS NOT NULL
            ) AS n ON n.previous_session_id = m.session_id
        )
        SELECT session_id FROM mixed ORDER BY session_id
        """,
        keys,
    )
    return tuple(row["session_id"] for row in await found.fetchall())
