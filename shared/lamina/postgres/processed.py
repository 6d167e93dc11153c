"""Which events are done. A mark commits together with what the event brought about."""

import uuid
from typing import Any

from psycopg.types.json import Jsonb

from lamina.postgres.database import Connection


async def mark(
    conn: Connection, consumer: str, app: str, user_id: str, event_id: uuid.UUID, *, result: Any = None
) -> None:
    """Remember the event and what a redelivery should be told. A mark that is there stands."""
    await conn.execute(
        """
        INSERT INTO lamina.processed_events (app, user_id, consumer, event_id, result)
        VALUES (%(app)s, %(user_id)s, %(consumer)s, %(event_id)s, %(result)s)
        ON CONFLICT (app, user_id, consumer, event_id) DO NOTHING
        """,
        {
            "app": app,
            "user_id": user_id,
            "consumer": consumer,
            "event_id": event_id,
            "result": None if result is None else Jsonb(result),
        },
    )


async def result_of(conn: Connection, consumer: str, app: str, user_id: str, event_id: uuid.UUID) -> Any:
    """What the event brought about; None where it is not done."""
    found = await conn.execute(
        """
        SELECT result
        FROM lamina.processed_events
        WHERE app = %(app)s AND user_id = %(user_id)s AND consumer = %(consumer)s AND event_id = %(event_id)s
        """,
        {"app": app, "user_id": user_id, "consumer": consumer, "event_id": event_id},
    )
    row = await found.fetchone()
    return row["result"] if row else None
