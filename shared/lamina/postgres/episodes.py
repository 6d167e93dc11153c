"""The turn log and its episodes in the database."""

import uuid
from collections.abc import Sequence

from lamina.model import EpisodeChunk, SessionKey, Turn, derived_id
from lamina.ports import Vector
from lamina.postgres.database import Connection, Database
from lamina.postgres.processed import mark
from lamina.postgres.tombstones import enter, places_of
from lamina.postgres.turn_log import find_turn, lock_session, log_turns
from lamina.recall.words import searchable, text_search_config

CONSUMER = "episodic-embedder"


def episode_id(session: SessionKey, turn_id: str, ordinal: int) -> uuid.UUID:
    """The id of a chunk, the same whoever derives it."""
    return derived_id("episode", session.app, session.user_id, session.session_id, turn_id, str(ordinal))


class PostgresEpisodes:
    """The EpisodeStore of production."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, turn: Turn, chunks: Sequence[EpisodeChunk], chunker: str = "") -> Sequence[int]:
        """Store the turn and its chunks' text. Gives the ordinals of the chunks that have no vector yet.

        The first recording of a turn stands: other chunks for it change nothing.
        """
        async with self._database.as_user(turn.app, turn.user_id) as conn:
            (await enter(conn, turn.app, turn.user_id, places_of([turn]))).refuse(turn)
            await lock_session(conn, turn.session)
            await log_turns(conn, turn.session, [turn])
            if chunks:
                await insert_chunks(conn, turn, chunks, chunker)
                await _weave(conn, turn)
            waiting = await conn.execute(
                """
                SELECT ordinal
                FROM lamina.episodes
                WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
                  AND turn_id = %(turn_id)s AND embedding IS NULL
                ORDER BY ordinal
                """,
                {**turn.session.model_dump(), "turn_id": turn.turn_id},
            )
            return [row["ordinal"] for row in await waiting.fetchall()]

    async def embed(
        self, turn: Turn, vectors: dict[int, Vector], model: str, event_id: uuid.UUID | None
    ) -> None:
        """See `EpisodeStore.embed`."""
        async with self._database.as_user(turn.app, turn.user_id) as conn:
            (await enter(conn, turn.app, turn.user_id, places_of([turn]))).refuse(turn)
            if vectors:
                async with conn.cursor() as cursor:
                    await cursor.executemany(
                        """
                        UPDATE lamina.episodes
                        SET embedding = %(vector)s::vector, embedding_model = %(model)s
                        WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
                          AND turn_id = %(turn_id)s AND ordinal = %(ordinal)s
                          AND embedding IS NULL
                        """,
                        [
                            {
                                **turn.session.model_dump(),
                                "turn_id": turn.turn_id,
                                "ordinal": ordinal,
                                "vector": str(vector),
                                "model": model,
                            }
                            for ordinal, vector in sorted(vectors.items())
                        ],
                    )
            if event_id:
                await mark(conn, CONSUMER, turn.app, turn.user_id, event_id)

    async def turn(self, session: SessionKey, turn_id: str) -> Turn | None:
        """A turn from the log, equal to what was published."""
        async with self._database.as_user(session.app, session.user_id) as conn:
            return await find_turn(conn, session, turn_id)


async def insert_chunks(conn: Connection, turn: Turn, chunks: Sequence[EpisodeChunk], chunker: str) -> None:
    """Store the chunks of a turn that has none; its project and moment are those of the log."""
    await conn.execute(
        """
        INSERT INTO lamina.episodes (
            episode_id, app, user_id, session_id, turn_id, ordinal, project_id, speaker, text, language,
            handle, chunker, occurred_at, search
        )
        SELECT c.episode_id, t.app, t.user_id, t.session_id, t.turn_id, c.ordinal, t.project_id, c.speaker,
               c.text, c.language, c.handle, %(chunker)s, t.occurred_at,
               setweight(to_tsvector(c.config::regconfig, c.words), 'A')
        FROM lamina.turns AS t
        CROSS JOIN unnest(
            %(episode_ids)s::uuid[], %(ordinals)s::int[], %(speakers)s::text[], %(texts)s::text[],
            %(languages)s::text[], %(handles)s::text[], %(configs)s::text[], %(words)s::text[]
        ) AS c (episode_id, ordinal, speaker, text, language, handle, config, words)
        WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = %(session_id)s
          AND t.turn_id = %(turn_id)s
          AND NOT EXISTS (
              SELECT FROM lamina.episodes AS e
              WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = %(session_id)s
                AND e.turn_id = %(turn_id)s
          )
        """,
        {
            **turn.session.model_dump(),
            "turn_id": turn.turn_id,
            "chunker": chunker,
            "episode_ids": [episode_id(turn.session, turn.turn_id, chunk.ordinal) for chunk in chunks],
            "ordinals": [chunk.ordinal for chunk in chunks],
            "speakers": [chunk.speaker.value for chunk in chunks],
            "texts": [chunk.text for chunk in chunks],
            "languages": [chunk.language for chunk in chunks],
            "handles": [chunk.handle for chunk in chunks],
            "configs": [text_search_config(chunk.language) for chunk in chunks],
            "words": [searchable(chunk.text, chunk.language) for chunk in chunks],
        },
    )


async def weave_sessions(conn: Connection, app: str, user_id: str, session_ids: Sequence[str]) -> None:
    """Give every chunk of these sessions its neighbours' words anew, as `_weave` does turn by turn."""
    await conn.execute(
        """
        WITH own AS (
            SELECT e.session_id, e.occurred_at, e.turn_id, e.ordinal,
                   ts_filter(e.search, '{a}') AS words
            FROM lamina.episodes AS e
            WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = ANY(%(session_ids)s)
        ),
        -- Worked out once, even where the planner takes the user to have one row.
        woven AS MATERIALIZED (
            SELECT o.session_id, o.turn_id, o.ordinal,
                   o.words
                   || coalesce(setweight(lag(o.words) OVER in_order, 'D'), '')
                   || coalesce(setweight(lead(o.words) OVER in_order, 'D'), '') AS search
            FROM own AS o
            WINDOW in_order AS (
                PARTITION BY o.session_id ORDER BY o.occurred_at, o.turn_id, o.ordinal
            )
        )
        UPDATE lamina.episodes AS e
        SET search = w.search
        FROM woven AS w
        WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = ANY(%(session_ids)s)
          AND e.session_id = w.session_id AND e.turn_id = w.turn_id AND e.ordinal = w.ordinal
          AND e.search <> w.search
        """,
        {"app": app, "user_id": user_id, "session_ids": list(session_ids)},
    )


async def _weave(conn: Connection, turn: Turn) -> None:
    """Give the turn's chunks, and the two that they stand between, their neighbours' words at weight D.

    A chunk's own words are those at weight A, so that the outcome depends on the session's chunks alone and
    not on the order in which they arrived. The chunks two steps away are read, but stay as they are.
    """
    await conn.execute(
        """
        WITH here AS (
            SELECT t.occurred_at, t.turn_id
            FROM lamina.turns AS t
            WHERE t.app = %(app)s AND t.user_id = %(user_id)s AND t.session_id = %(session_id)s
              AND t.turn_id = %(turn_id)s
        ),
        around AS (
            (SELECT e.episode_id, e.occurred_at, e.turn_id, e.ordinal, e.search,
                    row_number()
                        OVER (ORDER BY e.occurred_at DESC, e.turn_id DESC, e.ordinal DESC) AS distance
             FROM lamina.episodes AS e
             WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = %(session_id)s
               AND (e.occurred_at, e.turn_id)
                   < ((SELECT occurred_at FROM here), (SELECT turn_id FROM here))
             ORDER BY e.occurred_at DESC, e.turn_id DESC, e.ordinal DESC
             LIMIT 2)
            UNION ALL
            (SELECT e.episode_id, e.occurred_at, e.turn_id, e.ordinal, e.search, 0
             FROM lamina.episodes AS e
             WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = %(session_id)s
               AND e.turn_id = %(turn_id)s)
            UNION ALL
            (SELECT e.episode_id, e.occurred_at, e.turn_id, e.ordinal, e.search,
                    row_number() OVER (ORDER BY e.occurred_at, e.turn_id, e.ordinal)
             FROM lamina.episodes AS e
             WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = %(session_id)s
               AND (e.occurred_at, e.turn_id)
                   > ((SELECT occurred_at FROM here), (SELECT turn_id FROM here))
             ORDER BY e.occurred_at, e.turn_id, e.ordinal
             LIMIT 2)
        ),
        own AS (
            SELECT a.episode_id, a.occurred_at, a.turn_id, a.ordinal, a.distance,
                   ts_filter(a.search, '{a}') AS words
            FROM around AS a
        ),
        woven AS (
            SELECT o.episode_id, o.distance,
                   o.words
                   || coalesce(setweight(lag(o.words) OVER in_order, 'D'), '')
                   || coalesce(setweight(lead(o.words) OVER in_order, 'D'), '') AS search
            FROM own AS o
            WINDOW in_order AS (ORDER BY o.occurred_at, o.turn_id, o.ordinal)
        )
        UPDATE lamina.episodes AS e
        SET search = w.search
        FROM woven AS w
        WHERE e.episode_id = w.episode_id AND w.distance < 2 AND e.search <> w.search
        """,
        {**turn.session.model_dump(), "turn_id": turn.turn_id},
    )
