"""Where a turn has left traces in the database."""

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.events import TurnRecorded
from lamina.model import SessionKey, derived_id
from lamina.ports import Evidence, IndexedLetter
from lamina.postgres.database import Database, Query


class PostgresReceipts:
    """Implements `lamina.ports.ReceiptReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sessions_of(self, app: str, user_id: str, turn_id: str) -> Sequence[str]:
        """See `ReceiptReader.sessions_of`. Reads the keys of all of the user's turns."""
        query: Query = (
            """
            SELECT t.session_id
            FROM lamina.turns AS t
            WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.turn_id = %(turn_id)s
            UNION
            SELECT d.session_id
            FROM lamina.dead_letters AS d
            WHERE d.app = %(app)s AND d.user_id = %(user_id)s AND d.turn_id = %(turn_id)s
            """,
            {"app": app, "user_id": user_id, "turn_id": turn_id},
        )
        [rows] = await self._database.read(app, user_id, [query])
        return sorted(row["session_id"] for row in rows)

    async def evidence(self, session: SessionKey, turn_id: str) -> Evidence:
        """See `ReceiptReader.evidence`: one round trip."""
        keys = {**session.model_dump(), "turn_id": turn_id}
        queries = [_stages(keys), _processed(keys), _letters(keys)]
        [row], marks, letters = await self._database.read(session.app, session.user_id, queries)
        return Evidence(
            **row,
            processed={mark["consumer"]: mark["processed_at"] for mark in marks},
            letters=tuple(IndexedLetter(**letter) for letter in letters),
        )


def _stages(keys: Mapping[str, Any]) -> Query:
    return (
        """
        SELECT t.recorded_at, c.version AS summary_version, y.created_at AS summarised_at,
               coalesce(c.set_aside, false) AS set_aside, e.chunks, e.vectors, e.indexed_at,
               (SELECT count(*)
                FROM lamina.statements AS s
                WHERE s.app = %(app)s AND s.user_id = %(user_id)s AND s.session_id = %(session_id)s
                  AND s.turn_id = %(turn_id)s) AS statements
        FROM (
            SELECT count(*) AS chunks, count(e.embedding_model) AS vectors, min(e.recorded_at) AS indexed_at
            FROM lamina.episodes AS e
            WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = %(session_id)s
              AND e.turn_id = %(turn_id)s
        ) AS e
        LEFT JOIN lamina.turns AS t
            ON t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = %(session_id)s
            AND t.turn_id = %(turn_id)s
        LEFT JOIN lamina.summary_turns AS c
            ON c.app = %(app)s AND c.user_id = %(user_id)s AND c.session_id = %(session_id)s
            AND c.turn_id = %(turn_id)s
        LEFT JOIN lamina.summaries AS y
            ON y.app = %(app)s AND y.user_id = %(user_id)s AND y.session_id = %(session_id)s
            AND y.version = c.version
        """,
        keys,
    )


def _processed(keys: Mapping[str, Any]) -> Query:
    names = (keys["app"], keys["user_id"], keys["session_id"], keys["turn_id"])
    return (
        """
        SELECT consumer, processed_at
        FROM lamina.processed_events
        WHERE app = %(app)s AND user_id = %(user_id)s AND consumer = ANY(%(consumers)s)
          AND event_id = %(event_id)s
        """,
        {
            **keys,
            "consumers": ["summarizer", "entity-extractor", "episodic-embedder"],
            "event_id": derived_id(TurnRecorded.type, *names),
        },
    )


def _letters(keys: Mapping[str, Any]) -> Query:
    """Those of this turn, and of one that did not say its session."""
    return (
        """
        SELECT app, user_id, session_id, turn_id, subscription, error, reason, failures, service, first_seen,
               parked_at, trace_id, event_id
        FROM lamina.dead_letters
        WHERE app = %(app)s AND user_id = %(user_id)s AND turn_id = %(turn_id)s
          AND session_id IN (%(session_id)s, '')
        ORDER BY parked_at, subscription
        """,
        keys,
    )
