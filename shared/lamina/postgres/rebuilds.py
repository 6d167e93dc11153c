"""Rebuilds in the database: how they begin and end. What they make in between is in `shadows`."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from psycopg.types.json import Jsonb

from lamina.errors import ConfigurationError, NotFound
from lamina.ids import uuid7
from lamina.model import SessionKey
from lamina.postgres.database import Connection, Database
from lamina.postgres.tombstones import enter

RebuildStage = Literal["entities", "episodes", "summaries"]


@dataclass(frozen=True)
class Rebuild:
    """What is made again, and by what."""

    rebuild_id: uuid.UUID
    app: str
    user_id: str
    stage: RebuildStage
    session_id: str | None
    """None: all sessions of the user."""
    maker: str
    """Empty: nothing but the vectors is made again."""
    embedder: str
    state: str = "running"

    @property
    def keys(self) -> dict[str, Any]:
        """Parameters of every statement about this rebuild."""
        return {
            "rebuild_id": self.rebuild_id,
            "app": self.app,
            "user_id": self.user_id,
            "only_session": self.session_id,
        }

    def session(self, session_id: str) -> SessionKey:
        """One of the user's sessions."""
        return SessionKey(app=self.app, user_id=self.user_id, session_id=session_id)


class PostgresRebuilds:
    """Opens rebuilds and gives them up. Swapping is up to each stage's own module."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(
        self,
        app: str,
        user_id: str,
        stage: RebuildStage,
        session_id: str | None,
        *,
        maker: str,
        embedder: str = "",
    ) -> Rebuild:
        """The user's open rebuild of this stage, else a new one.

        ConfigurationError where the open one is of another scope, or made by something else.
        """
        wanted = Rebuild(uuid7(), app, user_id, stage, session_id, maker, embedder)
        async with self._database.as_user(app, user_id) as conn:
            # Nothing is being forgotten now; whatever is later ends this rebuild. So tombstones never change
            # while one is open.
            await enter(conn, app, user_id)
            await conn.execute(
                """
                INSERT INTO lamina.rebuilds (
                    rebuild_id, app, user_id, stage, session_id, maker, embedder
                ) VALUES (
                    %(rebuild_id)s, %(app)s, %(user_id)s, %(stage)s, %(only_session)s, %(maker)s, %(embedder)s
                )
                ON CONFLICT (app, user_id, stage) WHERE ended_at IS NULL DO NOTHING
                """,
                {**wanted.keys, "stage": stage, "maker": maker, "embedder": embedder},
            )
            found = await _find(conn, app, user_id, stage)
        if found is None:
            raise ended()
        if (found.session_id, found.maker, found.embedder) != (session_id, maker, embedder):
            of = f"session {found.session_id}" if found.session_id else "all sessions"
            by = " and ".join(name for name in (found.maker, found.embedder) if name)
            raise ConfigurationError(
                f"a rebuild of the {stage} of {of} with {by} is open: finish it with that, or --discard it"
            )
        return found

    async def find(self, app: str, user_id: str, stage: RebuildStage) -> Rebuild | None:
        """The user's open rebuild of this stage."""
        async with self._database.as_user(app, user_id) as conn:
            return await _find(conn, app, user_id, stage)

    async def ready(self, rebuild: Rebuild, counts: Mapping[str, Any]) -> None:
        """Say that it may be swapped, and what it would change."""
        async with self._database.as_user(rebuild.app, rebuild.user_id) as conn:
            await conn.execute(
                """
                UPDATE lamina.rebuilds
                SET state = 'ready', counts = %(counts)s
                WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s
                  AND ended_at IS NULL
                """,
                {**rebuild.keys, "counts": Jsonb(dict(counts))},
            )

    async def discard(self, rebuild: Rebuild) -> None:
        """Throw away what it made. A unit that is in hand elsewhere is refused."""
        async with self._database.as_user(rebuild.app, rebuild.user_id) as conn:
            await end(conn, rebuild, "abandoned")


async def hold(conn: Connection, rebuild: Rebuild) -> None:
    """Keep the rebuild for this transaction alone. NotFound where it was ended."""
    held = await conn.execute(
        """
        SELECT FROM lamina.rebuilds
        WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s AND ended_at IS NULL
        FOR UPDATE
        """,
        rebuild.keys,
    )
    if await held.fetchone() is None:
        raise ended()


async def end(
    conn: Connection, rebuild: Rebuild, state: Literal["swapped", "abandoned"], *, keep_items: bool = False
) -> None:
    """End a rebuild, and delete what it had made: it is memory by now, or it is not wanted."""
    await conn.execute(
        """
        UPDATE lamina.rebuilds
        SET state = %(state)s, ended_at = now()
        WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s AND ended_at IS NULL
        """,
        {**rebuild.keys, "state": state},
    )
    await conn.execute(
        """
        DELETE FROM lamina.rebuild_vectors
        WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s
        """,
        rebuild.keys,
    )
    if not keep_items:
        await conn.execute(
            """
            DELETE FROM lamina.rebuild_items
            WHERE rebuild_id = %(rebuild_id)s AND app = %(app)s AND user_id = %(user_id)s
            """,
            rebuild.keys,
        )


def ended() -> NotFound:
    """What a command is told whose rebuild is no more."""
    return NotFound("the rebuild was ended meanwhile: discarded, or something of the user was forgotten")


async def _find(conn: Connection, app: str, user_id: str, stage: RebuildStage) -> Rebuild | None:
    found = await conn.execute(
        """
        SELECT rebuild_id, app, user_id, stage, session_id, maker, embedder, state
        FROM lamina.rebuilds
        WHERE app = %(app)s AND user_id = %(user_id)s AND stage = %(stage)s AND ended_at IS NULL
        """,
        {"app": app, "user_id": user_id, "stage": stage},
    )
    row = await found.fetchone()
    return Rebuild(**row) if row else None
