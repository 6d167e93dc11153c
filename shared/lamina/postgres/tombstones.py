"""The tombstones in the database, and the lock that keeps forgetting and writing apart.

Every transaction that brings in what turns say begins with `enter`, the one that forgets with
`enter_alone`, before any other lock. So a writer finishes first, and what it wrote is deleted, or finds the
tombstone.
"""

from collections.abc import Iterable
from datetime import datetime

from lamina.forgetting import Selection, Tombstones
from lamina.postgres.database import Connection, Query
from lamina.postgres.turn_log import key_of

_NAME = "memory"


def tombstones_query(app: str, user_id: str) -> Query:
    """The rows that `Tombstones.of_rows` reads."""
    return (
        """
        SELECT scope, owner, name, forgotten_at, generation
        FROM lamina.tombstones
        WHERE app = %(app)s AND user_id = %(user_id)s
        ORDER BY scope, owner, name
        """,
        {"app": app, "user_id": user_id},
    )


async def enter(conn: Connection, app: str, user_id: str) -> Tombstones:
    """Keep the user's memory from being forgotten until the transaction ends. Gives what is forgotten."""
    # Two statements: the second one's snapshot is taken once the lock is held.
    await conn.execute("SELECT pg_advisory_xact_lock_shared(%(key)s)", {"key": key_of(_NAME, app, user_id)})
    return await tombstones_of(conn, app, user_id)


async def enter_alone(conn: Connection, app: str, user_id: str) -> Tombstones:
    """The same, with nobody else writing the user's memory."""
    await conn.execute("SELECT pg_advisory_xact_lock(%(key)s)", {"key": key_of(_NAME, app, user_id)})
    return await tombstones_of(conn, app, user_id)


async def tombstones_of(conn: Connection, app: str, user_id: str) -> Tombstones:
    """What is forgotten now."""
    found = await conn.execute(*tombstones_query(app, user_id))
    return Tombstones.of_rows(app, user_id, await found.fetchall())


async def write_tombstones(
    conn: Connection,
    selection: Selection,
    stones: Iterable[tuple[str, str, str]],
    *,
    forgotten_at: datetime,
    generation: int,
) -> None:
    """Write tombstones of (scope, owner, name). One that is there moves forward, never back."""
    scopes, owners, names = zip(*sorted(stones), strict=True)
    await conn.execute(
        """
        INSERT INTO lamina.tombstones AS known (
            app, user_id, scope, owner, name, forgotten_at, generation
        )
        SELECT %(app)s, %(user_id)s, t.scope, t.owner, t.name, %(forgotten_at)s, %(generation)s
        FROM unnest(%(scopes)s::text[], %(owners)s::text[], %(names)s::text[]) AS t (scope, owner, name)
        ON CONFLICT (app, user_id, scope, owner, name) DO UPDATE
        SET forgotten_at = greatest(known.forgotten_at, excluded.forgotten_at),
            generation = excluded.generation
        """,
        {
            "app": selection.app,
            "user_id": selection.user_id,
            "forgotten_at": forgotten_at,
            "generation": generation,
            "scopes": list(scopes),
            "owners": list(owners),
            "names": list(names),
        },
    )
