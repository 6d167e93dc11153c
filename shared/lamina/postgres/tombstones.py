"""The tombstones in the database, and the lock that keeps forgetting and writing apart.

Every transaction that brings in what turns say begins with `enter`, the one that forgets with
`enter_alone`, before any other lock. So a writer finishes first, and what it wrote is deleted, or finds the
tombstone.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from lamina.forgetting import Selection, Tombstones
from lamina.model import Turn
from lamina.postgres.database import Connection, Query
from lamina.postgres.turn_log import key_of

_NAME = "memory"

Place = tuple[str, str]
"""A turn of the user's: its session, its id."""


def tombstones_query(app: str, user_id: str, places: Sequence[Place] | None = ()) -> Query:
    """The rows that `Tombstones.of_rows` reads. There may be very many of single turns: only those of
    `places` are read, or all where that is None."""
    return (
        """
        SELECT scope, owner, name, forgotten_at, generation
        FROM lamina.tombstones
        WHERE app = %(app)s AND user_id = %(user_id)s
          AND (scope IN ('user', 'session', 'project', 'slot', 'words')
               OR (scope = 'turn' AND (%(all)s OR (owner, name) IN (
                   SELECT p.owner, p.name
                   FROM unnest(%(owners)s::text[], %(names)s::text[]) AS p (owner, name)
               ))))
        ORDER BY scope, owner, name
        """,
        {
            "app": app,
            "user_id": user_id,
            "all": places is None,
            "owners": [session_id for session_id, _ in places or ()],
            "names": [turn_id for _, turn_id in places or ()],
        },
    )


def places_of(turns: Iterable[Turn]) -> list[Place]:
    """Where these turns are."""
    return [(turn.session_id, turn.turn_id) for turn in turns]


async def enter(conn: Connection, app: str, user_id: str, places: Sequence[Place] = ()) -> Tombstones:
    """Keep the user's memory from being forgotten until the transaction ends. Gives what is forgotten, and
    of single turns those at `places`."""
    # Two statements: the second one's snapshot is taken once the lock is held.
    await conn.execute("SELECT pg_advisory_xact_lock_shared(%(key)s)", {"key": key_of(_NAME, app, user_id)})
    return await tombstones_of(conn, app, user_id, places)


async def enter_alone(conn: Connection, app: str, user_id: str) -> Tombstones:
    """The same, with nobody else writing the user's memory."""
    await conn.execute("SELECT pg_advisory_xact_lock(%(key)s)", {"key": key_of(_NAME, app, user_id)})
    return await tombstones_of(conn, app, user_id)


async def tombstones_of(
    conn: Connection, app: str, user_id: str, places: Sequence[Place] | None = ()
) -> Tombstones:
    """What is forgotten now, and of single turns those at `places`; all where that is None."""
    found = await conn.execute(*tombstones_query(app, user_id, places))
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
