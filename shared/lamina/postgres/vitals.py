"""What an operator may know of all users' turns together: counts, keys and dates, and no content."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lamina.postgres.database import Database


@dataclass(frozen=True)
class StageLag:
    """What a subscription has not processed of the turns in the log."""

    subscription: str
    waiting: int
    oldest: datetime | None
    """Since when the turn named below waits."""
    app: str | None
    user_id: str | None
    session_id: str | None
    turn_id: str | None
    last_done: datetime | None
    """When the subscription last processed anything."""


@dataclass(frozen=True)
class LetterCount:
    """How many turns are parked for one class of error."""

    subscription: str
    error: str
    letters: int
    oldest: datetime


class PostgresVitals:
    """Asks the functions of migration 0008. The login must be a member of lamina_operator, or a superuser."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def lag(self, since: datetime, summary_after: int) -> Sequence[StageLag]:
        """One for each subscription that learns from turns, of the turns logged since then.

        `summary_after`: how many turns of a session make a summary due.
        """
        async with self._database.as_nobody() as conn:
            found = await conn.execute(
                """
                SELECT subscription, waiting, oldest, app, user_id, session_id, turn_id, last_done
                FROM lamina.stage_lag(%(since)s, %(summary_after)s)
                """,
                {"since": since, "summary_after": summary_after},
            )
            return [StageLag(**row) for row in await found.fetchall()]

    async def letters(self, since: datetime) -> Sequence[LetterCount]:
        """Turns parked since then whose stage has not been done meanwhile, the most frequent error first."""
        async with self._database.as_nobody() as conn:
            found = await conn.execute(
                """
                SELECT subscription, error, letters, oldest
                FROM lamina.dead_letters_by_error(%(since)s)
                ORDER BY letters DESC, subscription, error
                """,
                {"since": since},
            )
            return [LetterCount(**row) for row in await found.fetchall()]
