"""How far the pipeline has come with an app's turns, read as the administrator of a local stack."""

from typing import Any

import psycopg

STAGES = ("stored", "extracted", "embedded")
"""The stages that every turn goes through. (A summary waits until its session is long enough.)"""


async def counts_of(db: psycopg.AsyncConnection[Any], app: str) -> dict[str, int]:
    """Turns by stage, and rows by kind, of one app."""
    cursor = await db.execute(
        """
        SELECT
            (SELECT count(*) FROM lamina.turns WHERE app = %(app)s),
            (SELECT count(*) FROM lamina.processed_events
              WHERE app = %(app)s AND consumer = 'entity-extractor'),
            (SELECT count(*) FROM lamina.processed_events
              WHERE app = %(app)s AND consumer = 'episodic-embedder'),
            (SELECT count(*) FROM lamina.episodes WHERE app = %(app)s),
            (SELECT count(*) FROM lamina.episodes WHERE app = %(app)s AND embedding IS NULL),
            (SELECT count(*) FROM lamina.statements WHERE app = %(app)s),
            (SELECT count(*) FROM lamina.entities WHERE app = %(app)s),
            (SELECT count(*) FROM lamina.summaries WHERE app = %(app)s),
            (SELECT count(*) FROM lamina.summary_turns WHERE app = %(app)s)
        """,
        {"app": app},
    )
    row = await cursor.fetchone()
    names = (*STAGES, "episode chunks", "chunks without vector", "statements", "entities")
    return dict(zip((*names, "summary versions", "turns summarised"), row or (), strict=True))
