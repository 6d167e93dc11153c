"""Publishes turns through the topic and follows them to the last stage.

Times come from the database's own rows (`recorded_at`, `processed_at`), so that watching costs nothing.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import quantiles
from typing import Any

import psycopg

from lamina import strict_json
from lamina.client import TurnPublisher
from lamina.errors import DependencyUnavailable
from lamina.events import TurnRecorded
from lamina.model import Turn
from lamina_services.bench.pipeline import STAGES, counts_of
from lamina_services.episodic_embedder.decision import chunks_of

IN_FLIGHT = 64


@dataclass(frozen=True)
class Lag:
    """Seconds from just before the publish."""

    p50: float
    p95: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Lag":
        """The quantiles of at least two measurements."""
        cuts = quantiles(seconds, n=100)
        return cls(p50=round(cuts[49], 3), p95=round(cuts[94], 3))


@dataclass(frozen=True)
class IngestReport:
    """What a run showed. `missing`, `repeated` and `differing` count turns or rows, and should be 0."""

    turns: int
    publish_s: float
    total_s: float
    turns_per_s: float
    searchable_by_words: Lag
    searchable_by_vector: Lag
    missing: int
    repeated: int
    differing: int
    rows: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


async def run(
    turns: Sequence[Turn],
    publisher: TurnPublisher,
    database_url: str,
    *,
    rate: float | None = None,
    timeout_s: float = 600,
    progress: Callable[[int], None] = lambda _: None,
) -> IngestReport:
    """Publish the turns (at most `rate` a second), wait until every stage is done, and compare.

    DependencyUnavailable where a stage makes no progress for `timeout_s`.
    """
    started = time.monotonic()
    sent = await _publish(turns, publisher, rate)
    published = time.monotonic() - started
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await _until_done(db, turns, timeout_s, progress)
        total = time.monotonic() - started
        return await _report(db, turns, sent, published, total)


async def _publish(
    turns: Sequence[Turn], publisher: TurnPublisher, rate: float | None
) -> dict[str, datetime]:
    sent: dict[str, datetime] = {}
    gate = asyncio.Semaphore(IN_FLIGHT)
    start = time.monotonic()

    async def publish(number: int, turn: Turn) -> None:
        async with gate:
            if rate:
                await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
            sent[turn.turn_id] = datetime.now(UTC)
            await publisher.publish(turn)

    async with asyncio.TaskGroup() as tasks:
        for number, turn in enumerate(turns):
            tasks.create_task(publish(number, turn))
    return sent


async def _until_done(
    db: psycopg.AsyncConnection[Any], turns: Sequence[Turn], timeout_s: float, progress: Callable[[int], None]
) -> None:
    app = turns[0].app
    deadline, best = time.monotonic() + timeout_s, -1
    while True:
        counts = await counts_of(db, app)
        done = min(counts[stage] for stage in STAGES)
        progress(done)
        if done >= len(turns):
            return
        if done > best:
            deadline, best = time.monotonic() + timeout_s, done
        if time.monotonic() > deadline:
            raise DependencyUnavailable("pipeline", f"stands still at {counts}")
        await asyncio.sleep(0.1)


async def _report(
    db: psycopg.AsyncConnection[Any],
    turns: Sequence[Turn],
    sent: dict[str, datetime],
    published: float,
    total: float,
) -> IngestReport:
    app = turns[0].app
    cursor = await db.execute(
        """
        SELECT t.turn_id, t.events::text, t.recorded_at, p.processed_at
        FROM lamina.turns AS t
        JOIN lamina.processed_events AS p
          ON p.app = t.app AND p.user_id = t.user_id AND p.consumer = 'episodic-embedder'
         AND p.event_id = ANY(%(ids)s)
         AND p.event_id = (%(id_of)s::jsonb ->> t.turn_id)::uuid
        WHERE t.app = %(app)s
        """,
        _ids(turns, app),
    )
    stored = {row[0]: row[1:] for row in await cursor.fetchall()}
    by_words = [(stored[i][1] - sent[i]).total_seconds() for i in stored if i in sent]
    by_vector = [(stored[i][2] - sent[i]).total_seconds() for i in stored if i in sent]
    rows = await counts_of(db, app)
    expected_chunks = sum(len(chunks_of(turn)) for turn in turns)
    return IngestReport(
        turns=len(turns),
        publish_s=round(published, 2),
        total_s=round(total, 2),
        turns_per_s=round(len(turns) / total, 1),
        searchable_by_words=Lag.of(by_words),
        searchable_by_vector=Lag.of(by_vector),
        missing=len({turn.turn_id for turn in turns} - set(stored)),
        repeated=abs(rows["episode chunks"] - expected_chunks),
        differing=sum(
            strict_json.loads(stored[turn.turn_id][0]) != [event.root for event in turn.events]
            for turn in turns
            if turn.turn_id in stored
        ),
        rows=rows,
    )


def _ids(turns: Sequence[Turn], app: str) -> dict[str, Any]:
    by_turn = {turn.turn_id: str(TurnRecorded(turn=turn).event_id()) for turn in turns}
    return {"app": app, "ids": list(by_turn.values()), "id_of": strict_json.dumps(by_turn).decode()}
