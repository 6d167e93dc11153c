"""Forgetting one thing that was said: its slot's statements, and the lines that repeat them.

The turns in which it was said stay in the log and in the episodes, and so do digests of them.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from psycopg.rows import DictRow

from lamina.errors import NotFound
from lamina.forgetting import Selection, Tombstones, slot_id, words_id
from lamina.model import SummaryLine
from lamina.postgres.database import Connection
from lamina.postgres.deriving import Slot
from lamina.postgres.forgetting_derived import derive_again
from lamina.postgres.summaries import lines_of, text_of
from lamina.postgres.tombstones import tombstones_of, write_tombstones


async def forget_entity(
    conn: Connection, selection: Selection, forgotten_at: datetime, generation: int
) -> tuple[Counter[str], Counter[str]]:
    """Forget the slot of the entity. Gives what went by table, and what stays by what it is.

    Where it was forgotten before, nothing more goes. NotFound where the user has, and had, no such entity.
    """
    slot = await _slot_of(conn, selection)
    counts, stays = Counter[str](), Counter[str]()
    if slot is not None:
        said = await _drop_statements(conn, selection, slot)
        stones = _stones(selection, slot, said)
        await write_tombstones(conn, selection, stones, forgotten_at=forgotten_at, generation=generation)
        counts["statements"] = len(said)
        counts["entities"] = await derive_again(conn, selection.app, selection.user_id, [slot])
        stays["turns that said so"] = len({(row["session_id"], row["turn_id"]) for row in said})
    known = await tombstones_of(conn, selection.app, selection.user_id)
    counts["summary lines"] = await _clean_summaries(conn, known)
    counts["compaction lines"] = await _clean_compactions(conn, known)
    return counts, stays


async def _slot_of(conn: Connection, selection: Selection) -> Slot | None:
    """The entity's slot; None where the entity was forgotten before."""
    keys = {"app": selection.app, "user_id": selection.user_id, "entity_id": selection.entity_id}
    found = await conn.execute(
        """
        SELECT scope, owner, subject
        FROM lamina.entities
        WHERE app = %(app)s AND user_id = %(user_id)s AND entity_id = %(entity_id)s
        """,
        keys,
    )
    if row := await found.fetchone():
        return row["scope"], row["owner"], row["subject"]
    known = await conn.execute(
        """
        SELECT FROM lamina.tombstones
        WHERE app = %(app)s AND user_id = %(user_id)s AND scope = 'slot' AND owner = %(entity_id)s::text
        """,
        keys,
    )
    if await known.fetchone() is None:
        raise NotFound(f"the user has no entity {selection.entity_id}")
    return None


async def _drop_statements(conn: Connection, selection: Selection, slot: Slot) -> list[DictRow]:
    scope, owner, subject = slot
    found = await conn.execute(
        """
        DELETE FROM lamina.statements
        WHERE app = %(app)s AND user_id = %(user_id)s AND scope = %(scope)s AND owner = %(owner)s
          AND subject = %(subject)s AND (%(before)s::timestamptz IS NULL OR said_at <= %(before)s)
        RETURNING session_id, turn_id, text
        """,
        {
            "app": selection.app,
            "user_id": selection.user_id,
            "scope": scope,
            "owner": owner,
            "subject": subject,
            "before": selection.before,
        },
    )
    return await found.fetchall()


def _stones(selection: Selection, slot: Slot, said: Sequence[DictRow]) -> set[tuple[str, str, str]]:
    """One for the slot, and one for each thing said: another extractor may see another slot in it."""
    app, user_id = selection.app, selection.user_id
    stones = {("slot", str(selection.entity_id), slot_id(app, user_id, "/".join(slot)).hex)}
    for row in said:
        words = words_id(app, user_id, row["turn_id"], row["text"]).hex
        stones.add(("words", row["session_id"], f"{words}:{row['turn_id']}"))
    return stones


async def _clean_summaries(conn: Connection, stones: Tombstones) -> int:
    """Take the lines out of every version. Gives how many."""
    keys = {"app": stones.app, "user_id": stones.user_id}
    found = await conn.execute(
        """
        SELECT session_id, version, lines::text
        FROM lamina.summaries
        WHERE app = %(app)s AND user_id = %(user_id)s
        """,
        keys,
    )
    rows = await found.fetchall()
    cleaned = [(row, *_cleaned(stones, row["lines"])) for row in rows]
    await conn.execute(
        """
        UPDATE lamina.summaries AS y
        SET lines = c.lines::json
        FROM unnest(%(session_ids)s::text[], %(versions)s::int[], %(lines)s::text[])
            AS c (session_id, version, lines)
        WHERE y.app = %(app)s AND y.user_id = %(user_id)s AND y.session_id = c.session_id
          AND y.version = c.version
        """,
        {
            **keys,
            "session_ids": [row["session_id"] for row, _, gone in cleaned if gone],
            "versions": [row["version"] for row, _, gone in cleaned if gone],
            "lines": [text_of(kept) for _, kept, gone in cleaned if gone],
        },
    )
    return sum(len(gone) for _, _, gone in cleaned)


async def _clean_compactions(conn: Connection, stones: Tombstones) -> int:
    """Take the lines out of every compaction, undone or in force. Gives how many."""
    keys = {"app": stones.app, "user_id": stones.user_id}
    found = await conn.execute(
        """
        SELECT compaction_id, lines::text
        FROM lamina.compactions
        WHERE app = %(app)s AND user_id = %(user_id)s
        """,
        keys,
    )
    cleaned = [(row, *_cleaned(stones, row["lines"])) for row in await found.fetchall()]
    gone_lines = [(row["compaction_id"], line) for row, _, gone in cleaned for line in gone]
    await conn.execute(
        """
        UPDATE lamina.compactions AS k
        SET lines = c.lines::json
        FROM unnest(%(ids)s::uuid[], %(lines)s::text[]) AS c (compaction_id, lines)
        WHERE k.app = %(app)s AND k.user_id = %(user_id)s AND k.compaction_id = c.compaction_id
        """,
        {
            **keys,
            "ids": [row["compaction_id"] for row, _, gone in cleaned if gone],
            "lines": [text_of(kept) for _, kept, gone in cleaned if gone],
        },
    )
    await conn.execute(
        """
        DELETE FROM lamina.compaction_lines AS l
        USING unnest(%(ids)s::uuid[], %(turn_ids)s::text[], %(texts)s::text[])
            AS g (compaction_id, turn_id, text)
        WHERE l.app = %(app)s AND l.user_id = %(user_id)s AND l.compaction_id = g.compaction_id
          AND l.turn_id = g.turn_id AND l.text = g.text
        """,
        {
            **keys,
            "ids": [compaction_id for compaction_id, _ in gone_lines],
            "turn_ids": [line.turn_id for _, line in gone_lines],
            "texts": [line.text for _, line in gone_lines],
        },
    )
    return len(gone_lines)


def _cleaned(stones: Tombstones, text: str) -> tuple[tuple[SummaryLine, ...], list[SummaryLine]]:
    """The lines that stay, and those that go."""
    lines = lines_of(text)
    kept = stones.kept_lines(lines)
    staying = set(kept)
    return kept, [line for line in lines if line not in staying]
