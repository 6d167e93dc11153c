"""Receipts and the operator's view on a real database, filled by the stores themselves."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql
from psycopg.rows import dict_row

from lamina.errors import Forgotten
from lamina.events import TurnRecorded
from lamina.model import SessionKey, Summary, SummaryLine, Turn
from lamina.ports import Evidence, IndexedLetter
from lamina.postgres.dead_letters import PostgresDeadLetterIndex
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.receipts import PostgresReceipts
from lamina.postgres.summaries import PostgresSummaries
from tests.builders import BEGAN, a_chunk, a_session, a_statement, a_turn, a_user, a_vector
from tests.fixtures_postgres import TestDatabase, TestServer

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass
class Stores:
    database: TestDatabase
    summaries: PostgresSummaries
    entities: PostgresEntities
    episodes: PostgresEpisodes
    letters: PostgresDeadLetterIndex
    receipts: PostgresReceipts

    async def log(self, turn: Turn) -> None:
        await self.episodes.record(turn, [a_chunk(0, "said"), a_chunk(1, "answered")])

    async def embed(self, turn: Turn, *ordinals: int, done: bool = True) -> None:
        event = TurnRecorded(turn=turn).event_id() if done else None
        await self.episodes.embed(turn, {ordinal: a_vector() for ordinal in ordinals}, "m", event)

    async def extract(self, turn: Turn, *texts: str) -> None:
        said = [a_statement(turn, text, ordinal=n, subject=text) for n, text in enumerate(texts)]
        await self.entities.absorb(turn, said, "test-1", TurnRecorded(turn=turn).event_id())

    async def summarise(self, version: int, *turns: Turn, set_aside: bool = False) -> None:
        line = SummaryLine(kind="digest", text="So it was.", turn_id=turns[0].turn_id, at=BEGAN)
        summary = Summary(session=turns[0].session, version=version, lines=(line,), model="test-1")
        aside = [turn.turn_id for turn in turns] if set_aside else []
        await self.summaries.commit(summary, turns, uuid.uuid4(), set_aside=aside)

    async def park(self, turn: Turn, subscription: str, error: str = "ModelRefused") -> IndexedLetter:
        letter = a_letter(turn.session, turn.turn_id, subscription, error)
        await self.letters.record(letter)
        return letter

    async def lag(self, after: int = 3, since: datetime = LONG_AGO) -> dict[str, dict[str, object]]:
        rows = await self._ask("SELECT * FROM lamina.stage_lag(%s, %s)", since, after)
        return {str(row["subscription"]): row for row in rows}

    async def dead(self, since: datetime = LONG_AGO) -> set[tuple[object, ...]]:
        rows = await self._ask("SELECT * FROM lamina.dead_letters_by_error(%s)", since)
        return {(row["subscription"], row["error"], row["letters"]) for row in rows}

    async def _ask(self, query: str, *values: object) -> list[dict[str, object]]:
        async with await psycopg.AsyncConnection.connect(self.database.url("observing")) as conn:
            cursor = conn.cursor(row_factory=dict_row)
            await cursor.execute(sql.SQL(query), values)  # pyright: ignore[reportArgumentType] - of this file
            return await cursor.fetchall()


def a_letter(
    session: SessionKey, turn_id: str, subscription: str, error: str = "ModelRefused"
) -> IndexedLetter:
    return IndexedLetter(
        **session.model_dump(),
        turn_id=turn_id,
        subscription=subscription,
        error=error,
        reason="declined",
        failures=1,
        service=subscription,
        parked_at=BEGAN,
    )


@pytest_asyncio.fixture(loop_scope="session")
async def stores(postgres: TestServer) -> AsyncIterator[Stores]:
    """A database of its own for each test: the operator's view is of everybody."""
    database = await postgres.create()
    await postgres.run(
        sql.SQL("DROP ROLE IF EXISTS observing"),
        sql.SQL("CREATE ROLE observing LOGIN IN ROLE lamina_operator"),
    )
    async with (
        database.open("lamina_summarizer", size=1) as summarizer,
        database.open("lamina_entity_extractor", size=1) as extractor,
        database.open("lamina_episodic_embedder", size=1) as embedder,
        database.open("lamina_dead_letter_recorder", size=1) as recorder,
        database.open("lamina_context", size=1) as context,
    ):
        yield Stores(
            database,
            PostgresSummaries(summarizer),
            PostgresEntities(extractor),
            PostgresEpisodes(embedder),
            PostgresDeadLetterIndex(recorder),
            PostgresReceipts(context),
        )


async def test_each_stage_leaves_its_evidence(stores: Stores) -> None:
    turn = a_turn(a_user())
    session = turn.session
    assert await stores.receipts.evidence(session, "t1") == Evidence()
    await stores.log(turn)
    logged = await stores.receipts.evidence(session, "t1")
    assert (logged.recorded_at is not None, logged.chunks, logged.vectors) == (True, 2, 0)
    assert (logged.indexed_at is not None, logged.processed) == (True, {})
    await stores.embed(turn, 0, done=False)
    assert (await stores.receipts.evidence(session, "t1")).vectors == 1
    await stores.embed(turn, 1)
    await stores.extract(turn, "dark mode", "brief answers")
    await stores.summarise(1, turn)
    letter = await stores.park(turn, "summarizer")
    done = await stores.receipts.evidence(session, "t1")
    assert done.processed.keys() == {"entity-extractor", "episodic-embedder"}
    assert (done.statements, done.vectors, done.summary_version, done.set_aside) == (2, 2, 1, False)
    assert done.summarised_at is not None
    assert done.letters == (letter,)


async def test_a_turn_that_is_set_aside_says_so(stores: Stores) -> None:
    turn = a_turn(a_user())
    await stores.summarise(1, turn, set_aside=True)
    found = await stores.receipts.evidence(turn.session, "t1")
    assert (found.summary_version, found.set_aside) == (1, True)


async def test_no_other_user_or_session_sees_any_of_it(stores: Stores) -> None:
    turn = a_turn("ana")
    await stores.log(turn)
    await stores.embed(turn, 0, 1)
    await stores.extract(turn, "dark mode")
    await stores.summarise(1, turn)
    await stores.park(turn, "summarizer")
    for session in (a_session("bo"), a_session("ana", "s2")):
        assert await stores.receipts.evidence(session, "t1") == Evidence()
    assert await stores.receipts.sessions_of(turn.app, "bo", "t1") == []
    assert await stores.receipts.sessions_of(turn.app, "ana", "t1") == ["s1"]


async def test_a_late_letter_of_a_forgotten_user_is_not_indexed(stores: Stores) -> None:
    turn = a_turn(a_user())
    async with await psycopg.AsyncConnection.connect(stores.database.owner, autocommit=True) as conn:
        await conn.execute(
            """
            INSERT INTO lamina.tombstones (app, user_id, scope, owner, name, forgotten_at, generation)
            VALUES (%s, %s, 'user', '', '', %s, 1)
            """,
            [turn.app, turn.user_id, BEGAN + timedelta(days=1)],
        )
    with pytest.raises(Forgotten):
        await stores.park(turn, "summarizer")
    assert await stores.receipts.evidence(turn.session, "t1") == Evidence()


# --- the operator's view ---------------------------------------------------------------------------


async def test_nothing_waits_where_nothing_was_said(stores: Stores) -> None:
    lag = await stores.lag()
    assert lag.keys() == {"summarizer", "entity-extractor", "episodic-embedder"}
    assert all((row["waiting"], row["oldest"], row["last_done"]) == (0, None, None) for row in lag.values())


async def test_each_stage_tells_how_many_turns_wait_and_which_has_waited_longest(stores: Stores) -> None:
    first, second = a_turn("ana", 1), a_turn("bo", 2)
    for turn in (first, second):
        await stores.log(turn)
        await stores.embed(turn, 0, 1)
    await stores.extract(second, "dark mode")
    lag = await stores.lag()
    extracting, embedding = lag["entity-extractor"], lag["episodic-embedder"]
    assert (extracting["waiting"], extracting["user_id"], extracting["turn_id"]) == (1, "ana", "t1")
    assert isinstance(extracting["oldest"], datetime)
    assert extracting["last_done"] is not None
    assert (embedding["waiting"], embedding["oldest"]) == (0, None)
    await stores.extract(first)
    assert (await stores.lag())["entity-extractor"]["waiting"] == 0


async def test_what_is_parked_does_not_wait(stores: Stores) -> None:
    turn = a_turn("ana")
    await stores.log(turn)
    await stores.park(turn, "entity-extractor")
    lag = await stores.lag()
    assert (lag["entity-extractor"]["waiting"], lag["episodic-embedder"]["waiting"]) == (0, 1)


async def test_a_summary_is_due_once_enough_turns_have_come_and_not_before(stores: Stores) -> None:
    turns = [a_turn("ana", number) for number in range(1, 5)]
    for turn in turns[:2]:
        await stores.log(turn)
    assert (await stores.lag(after=3))["summarizer"]["waiting"] == 0
    for turn in turns[2:]:
        await stores.log(turn)
    due = (await stores.lag(after=3))["summarizer"]
    assert (due["waiting"], due["turn_id"]) == (2, "t1")
    since = (await stores.receipts.evidence(turns[2].session, "t3")).recorded_at
    assert due["oldest"] == since, "it has waited since the turn came that made it due"
    await stores.summarise(1, *turns[:2])
    assert (await stores.lag(after=3))["summarizer"]["waiting"] == 0


async def test_turns_from_before_the_window_are_left_out(stores: Stores) -> None:
    await stores.log(a_turn("ana"))
    assert (await stores.lag(since=datetime.now(UTC) + timedelta(hours=1)))["entity-extractor"][
        "waiting"
    ] == 0


async def test_dead_letters_are_counted_by_subscription_and_error_until_their_stage_is_done(
    stores: Stores,
) -> None:
    turns = [a_turn("ana", 1), a_turn("bo", 2), a_turn("bo", 3)]
    for turn in turns:
        await stores.park(turn, "entity-extractor")
        await stores.park(turn, "turn-ingest", "InvalidEvent")
    await stores.park(turns[0], "summarizer", "ModelUnavailable")
    assert await stores.dead() == {
        ("entity-extractor", "ModelRefused", 3),
        ("turn-ingest", "InvalidEvent", 3),
        ("summarizer", "ModelUnavailable", 1),
    }
    await stores.log(turns[0])
    await stores.extract(turns[0])
    await stores.summarise(1, turns[0], set_aside=True)
    assert await stores.dead() == {
        ("entity-extractor", "ModelRefused", 2),
        ("turn-ingest", "InvalidEvent", 2),
        ("summarizer", "ModelUnavailable", 1),
    }
    await stores.summarise(2, turns[0])
    assert ("summarizer", "ModelUnavailable", 1) not in await stores.dead()
    assert await stores.dead(BEGAN + timedelta(seconds=1)) == set()
