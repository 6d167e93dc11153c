"""What each memory holds of one user, read straight from the stores: only the demo and tests may do this."""

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row, dict_row

from lamina.api import EntityView, EpisodeView
from lamina.model import SessionKey, Summary, Turn
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import connect
from lamina_services.local.home import StackState

_ANY_TTL_S = 1  # a buffer that only reads sets no lifetime


@dataclass(frozen=True)
class SummaryRow:
    """One committed version of a summary."""

    version: int
    lines: str
    covers: list[str]
    """The turns that this version took over."""


@dataclass(frozen=True)
class Tiers:
    """The four memories."""

    buffer: tuple[Turn, ...]
    cached_summary: Summary | None
    summaries: Sequence[SummaryRow]
    entities: Sequence[EntityView]
    episodes: Sequence[EpisodeView]


async def read_tiers(state: StackState, session: SessionKey) -> Tiers:
    """The session's buffer and summaries, and all the statements and episodes of its user."""
    client = connect(state.valkey_url)
    try:
        view = await ValkeyBuffer(client, _ANY_TTL_S).read(session)
    finally:
        await client.aclose()
    names = session.model_dump()
    async with await psycopg.AsyncConnection.connect(state.database_url) as connection:
        await connection.set_read_only(True)
        summaries = await (
            await connection.cursor(row_factory=class_row(SummaryRow)).execute(
                """
                SELECT version,
                       (SELECT string_agg('- ' || (line ->> 'text'), chr(10) ORDER BY position)
                          FROM json_array_elements(lines) WITH ORDINALITY AS each (line, position)) AS lines,
                       ARRAY(SELECT turn_id FROM lamina.summary_turns AS covered
                              WHERE (covered.app, covered.user_id, covered.session_id)
                                  = (summaries.app, summaries.user_id, summaries.session_id)
                                AND covered.version = summaries.version
                              ORDER BY turn_id) AS covers
                  FROM lamina.summaries
                 WHERE (app, user_id, session_id) = (%(app)s, %(user_id)s, %(session_id)s)
                 ORDER BY version
                """,
                names,
            )
        ).fetchall()
        entities = await (
            await connection.cursor(row_factory=dict_row).execute(
                """
                SELECT entity_id, scope, project_id,
                       CASE scope WHEN 'session' THEN session_id END AS session_id,
                       kind, subject, text, said_by, turn_id, said_at, valid_to
                  FROM lamina.entities
                 WHERE (app, user_id) = (%(app)s, %(user_id)s)
                 ORDER BY scope, project_id, said_at, turn_id, ordinal
                """,
                names,
            )
        ).fetchall()
        episodes = await (
            await connection.cursor(row_factory=dict_row).execute(
                """
                SELECT session_id, project_id, turn_id, ordinal, speaker, text, occurred_at, handle
                  FROM lamina.episodes
                 WHERE (app, user_id) = (%(app)s, %(user_id)s)
                 ORDER BY occurred_at, turn_id, ordinal
                """,
                names,
            )
        ).fetchall()
    return Tiers(
        buffer=view.turns,
        cached_summary=view.summary,
        summaries=summaries,
        entities=[EntityView.model_validate(row) for row in entities],
        episodes=[EpisodeView.model_validate(row) for row in episodes],
    )


async def processed(state: StackState, app: str, user_ids: Sequence[str], consumer: str) -> set[str]:
    """The ids of the events that a consumer has finished for these users."""
    async with await psycopg.AsyncConnection.connect(state.database_url) as connection:
        cursor = await connection.execute(
            """
            SELECT event_id::text FROM lamina.processed_events
             WHERE app = %(app)s AND user_id = ANY(%(users)s) AND consumer = %(consumer)s
            """,
            {"app": app, "users": list(user_ids), "consumer": consumer},
        )
        return {str(event_id) for (event_id,) in await cursor.fetchall()}
