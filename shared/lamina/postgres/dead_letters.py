"""The index of dead letters in the database."""

from dataclasses import asdict

from lamina.errors import Forgotten
from lamina.ports import IndexedLetter
from lamina.postgres.database import Database
from lamina.postgres.tombstones import enter


class PostgresDeadLetterIndex:
    """The DeadLetterIndex of production."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, letter: IndexedLetter) -> None:
        """See `DeadLetterIndex.record`. A letter parked earlier than the known one changes nothing.

        Forgotten where the user had the turn forgotten: its letter may quote it.
        """
        at = letter.occurred_at or letter.first_seen or letter.parked_at
        turn = (letter.session_id, letter.turn_id, letter.project_id or None, at)
        async with self._database.as_user(letter.app, letter.user_id) as conn:
            stones = await enter(conn, letter.app, letter.user_id, [(letter.session_id, letter.turn_id)])
            if any(stone.covers(*turn) for stone in stones.each):
                raise Forgotten(f"turn {letter.turn_id} was forgotten at its user's wish")
            await conn.execute(
                """
                INSERT INTO lamina.dead_letters AS known (
                    app, user_id, session_id, turn_id, subscription, error, reason, failures, service,
                    first_seen, parked_at, trace_id, event_id
                ) VALUES (
                    %(app)s, %(user_id)s, %(session_id)s, %(turn_id)s, %(subscription)s, %(error)s,
                    %(reason)s, %(failures)s, %(service)s, %(first_seen)s, %(parked_at)s, %(trace_id)s,
                    %(event_id)s
                )
                ON CONFLICT (app, user_id, turn_id, session_id, subscription) DO UPDATE
                SET error = excluded.error, reason = excluded.reason, failures = excluded.failures,
                    service = excluded.service, first_seen = excluded.first_seen,
                    parked_at = excluded.parked_at, trace_id = excluded.trace_id,
                    event_id = excluded.event_id, recorded_at = now()
                WHERE (excluded.parked_at, excluded.failures) > (known.parked_at, known.failures)
                """,
                asdict(letter),
            )
