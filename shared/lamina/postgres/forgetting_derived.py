"""What was derived from forgotten turns goes; what else it held is derived again."""

from collections.abc import Iterable

from lamina.model import SessionKey
from lamina.postgres.compactions import CONSUMER as COMPACTOR
from lamina.postgres.database import Connection
from lamina.postgres.deriving import Slot, derive
from lamina.postgres.doomed import Doomed, count, drop_rows
from lamina.postgres.episodes import episode_id, weave_sessions


async def drop_compactions(conn: Connection, going: Doomed) -> int:
    """A compaction that stands for a forgotten turn goes whole, and what else it archived comes back.

    One that was undone keeps its row and other links, without a line: its undo is to last. A turn is archived
    whole, so that its first chunk tells; that may have expired, and its id is derived all the same.
    """
    chosen = going.selection
    first_chunks = [
        episode_id(SessionKey(app=chosen.app, user_id=chosen.user_id, session_id=session), turn, 0)
        for session, turn in zip(going.session_ids, going.turn_ids, strict=True)
    ]
    found = await conn.execute(
        """
        SELECT c.compaction_id, c.event_id, c.undone_at IS NOT NULL AS undone
        FROM lamina.compactions AS c
        WHERE c.app = %(app)s AND c.user_id = %(user_id)s
          AND (%(everything)s OR EXISTS (
              SELECT FROM lamina.compaction_episodes AS e
              WHERE e.app = c.app AND e.user_id = c.user_id AND e.compaction_id = c.compaction_id
                AND e.episode_id = ANY(%(first_chunks)s)
          ))
        """,
        {**going.keys, "everything": going.everything, "first_chunks": first_chunks},
    )
    rows = await found.fetchall()
    keys = {
        **going.keys,
        "consumer": COMPACTOR,
        "event_ids": [row["event_id"] for row in rows],
        "all": [row["compaction_id"] for row in rows],
        "whole": [row["compaction_id"] for row in rows if going.everything or not row["undone"]],
    }
    await conn.execute(
        """
        DELETE FROM lamina.compaction_lines
        WHERE app = %(app)s AND user_id = %(user_id)s AND compaction_id = ANY(%(all)s)
        """,
        keys,
    )
    await conn.execute(
        """
        UPDATE lamina.compactions
        SET lines = '[]'
        WHERE app = %(app)s AND user_id = %(user_id)s AND compaction_id = ANY(%(all)s)
        """,
        keys,
    )
    await conn.execute(
        """
        UPDATE lamina.episodes
        SET archived_by = NULL
        WHERE app = %(app)s AND user_id = %(user_id)s AND archived_by = ANY(%(all)s)
        """,
        keys,
    )
    await conn.execute(
        """
        DELETE FROM lamina.compaction_episodes
        WHERE app = %(app)s AND user_id = %(user_id)s AND compaction_id = ANY(%(whole)s)
        """,
        keys,
    )
    await conn.execute(
        """
        DELETE FROM lamina.compactions
        WHERE app = %(app)s AND user_id = %(user_id)s AND compaction_id = ANY(%(whole)s)
        """,
        keys,
    )
    await conn.execute(  # else a request that comes again would be told of a compaction that is no more
        """
        DELETE FROM lamina.processed_events
        WHERE app = %(app)s AND user_id = %(user_id)s AND consumer = %(consumer)s
          AND event_id = ANY(%(event_ids)s)
        """,
        keys,
    )
    return len(rows)


async def drop_episodes(conn: Connection, going: Doomed) -> int:
    """The turns' chunks, the links to them, and their words in the chunks that stood beside them."""
    await conn.execute(
        """
        DELETE FROM lamina.compaction_episodes AS l
        USING lamina.episodes AS e
        JOIN unnest(%(session_ids)s::text[], %(turn_ids)s::text[]) AS d (session_id, turn_id)
            USING (session_id, turn_id)
        WHERE l.app = %(app)s AND l.user_id = %(user_id)s AND l.episode_id = e.episode_id
          AND e.app = %(app)s AND e.user_id = %(user_id)s
        """,
        going.keys,
    )
    chunks = await drop_rows(conn, "episodes", going.keys)
    chosen = going.selection
    await weave_sessions(conn, chosen.app, chosen.user_id, going.touched)
    return chunks


async def drop_statements(conn: Connection, going: Doomed) -> tuple[int, int]:
    """What the turns said, and all that the selection names even where no log has its turn.

    The slots' entities are derived again. Gives how many statements went, and by how many entities are fewer.
    """
    named = await conn.execute(
        """
        DELETE FROM lamina.statements AS s
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s
          AND (%(session)s::text IS NULL OR s.session_id = %(session)s)
          AND (%(project)s::text IS NULL OR %(project)s IN (s.turn_project_id, s.project_id))
          AND (%(before)s::timestamptz IS NULL OR s.said_at <= %(before)s)
        RETURNING s.scope, s.owner, s.subject
        """,
        going.keys,
    )
    said = await conn.execute(
        """
        DELETE FROM lamina.statements AS s
        USING unnest(%(session_ids)s::text[], %(turn_ids)s::text[]) AS d (session_id, turn_id)
        WHERE s.app = %(app)s AND s.user_id = %(user_id)s
          AND s.session_id = d.session_id AND s.turn_id = d.turn_id
        RETURNING s.scope, s.owner, s.subject
        """,
        going.keys,
    )
    rows = [*await named.fetchall(), *await said.fetchall()]
    slots = {(row["scope"], row["owner"], row["subject"]) for row in rows}
    return len(rows), await derive_again(conn, going.selection.app, going.selection.user_id, slots)


async def derive_again(conn: Connection, app: str, user_id: str, slots: Iterable[Slot]) -> int:
    """Derive the slots from what is left. An entity that says the same in the same words keeps its vector.

    Gives how many entities fewer there are.
    """
    wanted = list(slots)
    keys = {"app": app, "user_id": user_id}
    total = "SELECT count(*) AS n FROM lamina.entities WHERE app = %(app)s AND user_id = %(user_id)s"
    before = await count(conn, total, keys)
    found = await conn.execute(
        """
        SELECT e.scope, e.owner, e.subject, e.text, e.embedding::text, e.embedding_model
        FROM lamina.entities AS e
        JOIN unnest(%(scopes)s::text[], %(owners)s::text[], %(subjects)s::text[])
            AS slot (scope, owner, subject) USING (scope, owner, subject)
        WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.embedding IS NOT NULL
          AND EXISTS (
              SELECT FROM lamina.statements AS s
              WHERE s.app = e.app AND s.user_id = e.user_id AND s.scope = e.scope AND s.owner = e.owner
                AND s.subject = e.subject AND s.text = e.text
          )
        """,
        {
            **keys,
            "scopes": [scope for scope, _, _ in wanted],
            "owners": [owner for _, owner, _ in wanted],
            "subjects": [subject for _, _, subject in wanted],
        },
    )
    vectors = await found.fetchall()
    await derive(conn, app, user_id, wanted)
    async with conn.cursor() as cursor:
        await cursor.executemany(
            """
            UPDATE lamina.entities
            SET embedding = %(embedding)s::vector, embedding_model = %(embedding_model)s
            WHERE app = %(app)s AND user_id = %(user_id)s AND scope = %(scope)s AND owner = %(owner)s
              AND subject = %(subject)s AND text = %(text)s AND embedding IS NULL
            """,
            [{**keys, **row} for row in vectors],
        )
    return before - await count(conn, total, keys)


async def drop_summaries(conn: Connection, going: Doomed) -> int:
    """Every version of each session that held something of the turns, and what it covered.

    The kept turns are uncovered then: the summarizer takes them up from the log.
    """
    keys = {**going.keys, "everything": going.everything}
    await conn.execute(
        """
        DELETE FROM lamina.summary_turns
        WHERE app = %(app)s AND user_id = %(user_id)s
          AND (%(everything)s OR session_id = ANY(%(mixed)s))
        """,
        keys,
    )
    return await count(
        conn,
        """
        WITH gone AS (
            DELETE FROM lamina.summaries
            WHERE app = %(app)s AND user_id = %(user_id)s
              AND (%(everything)s OR session_id = ANY(%(mixed)s))
            RETURNING version
        )
        SELECT count(*) AS n FROM gone
        """,
        keys,
    )
