"""Puts chunks that were cut again in the place of the old ones, with vectors and their neighbours' words."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.errors import StaleVersion
from lamina.model import EpisodeChunk, Turn
from lamina.postgres.database import Connection, Database, Query
from lamina.postgres.episodes import episode_id, insert_chunks, weave_sessions
from lamina.postgres.rebuilds import Rebuild, end, hold
from lamina.postgres.shadows import Unit, items, missing_turns, text_id
from lamina.postgres.tombstones import enter
from lamina.postgres.turn_log import find_turn, lock, lock_session


@dataclass(frozen=True)
class Held:
    """What memory has of a turn."""

    chunks: tuple[EpisodeChunk, ...] = ()
    embedded: frozenset[int] = frozenset()
    """Ordinals of the chunks that have a vector of the rebuild's embedder."""
    expired: bool = False
    """A compaction stands for the turn, and its chunks are no longer kept."""


class PostgresRebuiltEpisodes:
    """What the `episodes` stage of a rebuild reads and writes of the memory in use."""

    def __init__(self, database: Database, rebuild: Rebuild) -> None:
        self._database = database
        self._rebuild = rebuild

    async def held(self, unit: Unit) -> Held:
        """What memory has of a turn."""
        keys = self._keys(unit)
        chunks: Query = (
            """
            SELECT e.ordinal, e.speaker, e.text, e.language, e.handle,
                   e.embedding_model IS NOT DISTINCT FROM %(embedder)s AS embedded
            FROM lamina.episodes AS e
            WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = %(session_id)s
              AND e.turn_id = %(turn_id)s
            ORDER BY e.ordinal
            """,
            keys,
        )
        # Whole turns are compacted, so that the first chunk tells of them all.
        compacted: Query = (
            """
            SELECT FROM lamina.compaction_episodes AS c
            JOIN lamina.compactions AS made USING (compaction_id)
            WHERE c.app = %(app)s AND c.user_id = %(user_id)s AND c.episode_id = %(first_id)s
              AND made.undone_at IS NULL
            """,
            {**keys, "first_id": self._id(unit, 0)},
        )
        rows, standing = await self._database.read(
            self._rebuild.app, self._rebuild.user_id, [chunks, compacted]
        )
        embedded = frozenset(row["ordinal"] for row in rows if row.pop("embedded"))
        return Held(
            chunks=tuple(EpisodeChunk.model_validate(row) for row in rows),
            embedded=embedded,
            expired=not rows and bool(standing),
        )

    async def adopt(self, unit: Unit, texts: Mapping[int, str]) -> None:
        """Take over the vectors of a turn's chunks; `texts`: by ordinal. The same text needs no other one."""
        async with self._database.as_user(self._rebuild.app, self._rebuild.user_id) as conn:
            await conn.execute(
                """
                INSERT INTO lamina.rebuild_vectors (rebuild_id, app, user_id, text_id, embedding)
                SELECT r.rebuild_id, e.app, e.user_id, kept.text_id, e.embedding
                FROM lamina.rebuilds AS r
                CROSS JOIN unnest(%(ordinals)s::int[], %(text_ids)s::uuid[]) AS kept (ordinal, text_id)
                JOIN lamina.episodes AS e
                    ON e.app = r.app AND e.user_id = r.user_id AND e.session_id = %(session_id)s
                       AND e.turn_id = %(turn_id)s AND e.ordinal = kept.ordinal
                WHERE r.rebuild_id = %(rebuild_id)s AND r.app = %(app)s AND r.user_id = %(user_id)s
                  AND r.ended_at IS NULL AND e.embedding_model = %(embedder)s
                ON CONFLICT (rebuild_id, text_id) DO NOTHING
                """,
                {
                    **self._keys(unit),
                    "ordinals": list(texts),
                    "text_ids": [text_id(text) for text in texts.values()],
                },
            )

    async def swap(self) -> None:
        """Put the shadow in the place of the memory in use, in one transaction.

        StaleVersion where turns have been logged that are not in the shadow.
        """
        rebuild = self._rebuild
        async with self._database.as_user(rebuild.app, rebuild.user_id) as conn:
            await enter(conn, rebuild.app, rebuild.user_id)
            # Which chunks are archived, and what stands in their sessions, must not change meanwhile.
            await lock(conn, "compactions", rebuild.app, rebuild.user_id)
            for session_id in await _sessions(conn, rebuild):
                await lock_session(conn, rebuild.session(session_id))
            await hold(conn, rebuild)
            if await missing_turns(conn, rebuild):
                raise StaleVersion("turns were logged meanwhile")
            for session_id in await _sessions(conn, rebuild):
                await self._swap_session(conn, session_id)
            await _name_the_chunker(conn, rebuild)
            await end(conn, rebuild, "swapped")

    async def _swap_session(self, conn: Connection, session_id: str) -> None:
        """One session at a time: a user's whole text need not fit into memory at once."""
        changed = [item for item in await items(conn, self._rebuild, session_id) if item.result["changed"]]
        for item in changed:
            chunks = [EpisodeChunk.model_validate(chunk) for chunk in item.result["chunks"]]
            turn = await find_turn(conn, self._rebuild.session(session_id), item.unit.turn_id)
            if turn is not None:
                await self._swap_turn(conn, turn, item.unit, chunks)
        if changed:
            await weave_sessions(conn, self._rebuild.app, self._rebuild.user_id, [session_id])

    async def _swap_turn(
        self, conn: Connection, turn: Turn, unit: Unit, chunks: Sequence[EpisodeChunk]
    ) -> None:
        keys = self._keys(unit)
        gone = await conn.execute(
            """
            DELETE FROM lamina.episodes
            WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
              AND turn_id = %(turn_id)s
            RETURNING episode_id, archived_by
            """,
            keys,
        )
        old = await gone.fetchall()
        if chunks:
            await insert_chunks(conn, turn, chunks, self._rebuild.maker)
        await conn.execute(
            """
            UPDATE lamina.episodes AS e
            SET archived_by = %(archived_by)s,
                embedding = v.embedding,
                embedding_model = CASE WHEN v.embedding IS NOT NULL THEN %(embedder)s END
            FROM unnest(%(ordinals)s::int[], %(text_ids)s::uuid[]) AS made (ordinal, text_id)
            LEFT JOIN lamina.rebuild_vectors AS v
                ON v.rebuild_id = %(rebuild_id)s AND v.text_id = made.text_id
            WHERE e.app = %(app)s AND e.user_id = %(user_id)s AND e.session_id = %(session_id)s
              AND e.turn_id = %(turn_id)s AND e.ordinal = made.ordinal
            """,
            {
                **keys,
                "archived_by": next((row["archived_by"] for row in old if row["archived_by"]), None),
                "ordinals": [chunk.ordinal for chunk in chunks],
                "text_ids": [text_id(chunk.text) for chunk in chunks],
            },
        )
        before = {row["episode_id"] for row in old}
        after = {self._id(unit, chunk.ordinal) for chunk in chunks}
        await _cover(conn, keys, first=self._id(unit, 0), before=before, after=after)

    def _id(self, unit: Unit, ordinal: int) -> uuid.UUID:
        return episode_id(self._rebuild.session(unit.session_id), unit.turn_id, ordinal)

    def _keys(self, unit: Unit) -> dict[str, Any]:
        return {
            **self._rebuild.keys,
            "embedder": self._rebuild.embedder,
            "session_id": unit.session_id,
            "turn_id": unit.turn_id,
        }


async def _sessions(conn: Connection, rebuild: Rebuild) -> list[str]:
    found = await conn.execute(
        """
        SELECT DISTINCT session_id
        FROM lamina.rebuild_items
        WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s
        ORDER BY session_id
        """,
        rebuild.keys,
    )
    return [row["session_id"] for row in await found.fetchall()]


async def _cover(
    conn: Connection,
    keys: Mapping[str, Any],
    *,
    first: uuid.UUID,
    before: set[uuid.UUID],
    after: set[uuid.UUID],
) -> None:
    """A compaction that covered the turn covers its new chunks. The first one's row tells of it for good."""
    parameters = {**keys, "first_id": first, "come": sorted(after - before), "gone": sorted(before - after)}
    await conn.execute(
        """
        INSERT INTO lamina.compaction_episodes (app, user_id, compaction_id, episode_id)
        SELECT c.app, c.user_id, c.compaction_id, come.episode_id
        FROM lamina.compaction_episodes AS c
        CROSS JOIN unnest(%(come)s::uuid[]) AS come (episode_id)
        WHERE c.app = %(app)s AND c.user_id = %(user_id)s AND c.episode_id = %(first_id)s
        ON CONFLICT (compaction_id, episode_id) DO NOTHING
        """,
        parameters,
    )
    await conn.execute(
        """
        DELETE FROM lamina.compaction_episodes
        WHERE app = %(app)s AND user_id = %(user_id)s AND episode_id = ANY(%(gone)s)
          AND episode_id <> %(first_id)s
        """,
        parameters,
    )


async def _name_the_chunker(conn: Connection, rebuild: Rebuild) -> None:
    """The chunks that came out as they were are the new chunker's as well."""
    await conn.execute(
        """
        UPDATE lamina.episodes AS e
        SET chunker = %(maker)s
        FROM lamina.rebuild_items AS i
        WHERE i.rebuild_id = %(rebuild_id)s AND i.app = %(app)s AND i.user_id = %(user_id)s
          AND e.app = i.app AND e.user_id = i.user_id AND e.session_id = i.session_id
          AND e.turn_id = i.turn_id AND e.chunker <> %(maker)s
        """,
        {**rebuild.keys, "maker": rebuild.maker},
    )
