"""Two workers on the same thing at the same moment: races that only a guard decides.

The workers really overlap. Both go on only once both have read, or a transaction stays open for a while after
its last statement, so that without the guard another one works on what it cannot see. Where two guards stand
behind one another (a summary's version and its primary key, an episode's archiving and its link), a test
fails once both are gone.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from lamina.errors import StaleVersion
from lamina.events import CompactionRequested, TurnRecorded
from lamina.model import SessionKey, Summary, SummaryLine, Turn
from lamina.models.offline import OfflineModel
from lamina.models.tokens import EstimatedTokens
from lamina.ports import CompactionBatch
from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.database import Connection, Database
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.summaries import PostgresSummaries
from lamina.settings import Settings
from lamina.testing.clock import StoppedClock
from lamina.testing.models import HashEmbedder
from lamina.testing.publisher import InMemoryPublisher
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import connect
from lamina_services.compactor.handler import on_compaction_requested
from lamina_services.entity_extractor.handler import on_turn_recorded as extract
from lamina_services.episodic_embedder.handler import on_turn_recorded as embed
from lamina_services.summarizer.handler import on_turn_recorded as summarise
from lamina_services.turn_ingest.handler import ingest
from tests.builders import APP, BEGAN, a_chunk, a_session, a_statement, a_turn, a_user
from tests.fixtures_postgres import TestDatabase
from tests.fixtures_valkey import valkey_url
from tests.unit.summarizer_world import ModelThatKeepsEverything, Words

__all__ = ["valkey_url"]

HANGS_S = 20
LINGERS_S = 0.4


class Meeting:
    """Lets everybody go on once all have come; afterwards nobody waits any more."""

    def __init__(self, parties: int = 2) -> None:
        self._missing = parties
        self._complete = asyncio.Event()

    async def __call__(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._complete.set()
        async with asyncio.timeout(HANGS_S):
            await self._complete.wait()


class Lingering(Database):
    """Keeps each transaction open until another one got as far, or for a while where none can."""

    meeting: Meeting | None = None

    @asynccontextmanager
    async def as_user(self, app: str, user_id: str) -> AsyncGenerator[Connection]:
        async with super().as_user(app, user_id) as conn:
            yield conn
            if self.meeting is not None:
                await (await conn.execute("SELECT 1")).fetchall()  # what was sent has been done
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINGERS_S):
                        await self.meeting()


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """All at once; what each gave or raised."""
    async with asyncio.timeout(HANGS_S):
        return await asyncio.gather(*work, return_exceptions=True)


# --- two summarizers on one session -----------------------------------------------------------------


class SummariesReadTogether(PostgresSummaries):
    """Gives the latest summary once two workers have asked for it."""

    def __init__(self, database: Database, meeting: Meeting) -> None:
        super().__init__(database)
        self._meeting = meeting

    async def latest(
        self, session: SessionKey, previous_session_id: str | None, project_id: str | None
    ) -> Summary:
        read = await super().latest(session, previous_session_id, project_id)
        await self._meeting()
        return read


class OvertakenSummaries(PostgresSummaries):
    """After the first look at what is covered, lets another worker finish."""

    overtake: Coroutine[Any, Any, None] | None = None

    async def covered(self, session: SessionKey, turn_ids: Sequence[str]) -> frozenset[str]:
        found = await super().covered(session, turn_ids)
        if self.overtake is not None and len(turn_ids) > 1:
            other, self.overtake = self.overtake, None
            await other
        return found


@dataclass
class Summarizers:
    """What summarizers share."""

    database: Database
    buffer: ValkeyBuffer
    owner: str

    async def run(self, turn: Turn, summaries: PostgresSummaries) -> None:
        await summarise(
            TurnRecorded(turn=turn),
            buffer=self.buffer,
            summaries=summaries,
            model=ModelThatKeepsEverything(),
            publisher=InMemoryPublisher(),
            tokens=Words(),
            clock=StoppedClock(),
            settings=Settings(summary_trigger_turns=4, summary_keep_turns=1, summary_trigger_tokens=10**9),
        )

    async def buffered(self, user: str, count: int = 5) -> list[Turn]:
        turns = [a_turn(user, number) for number in range(1, count + 1)]
        for turn in turns:
            await self.buffer.append(turn)
        return turns

    async def check(self, turns: Sequence[Turn]) -> None:
        """Each turn but the latest is in the summary once and covered once; the latest is in the buffer."""
        session = turns[0].session
        latest = await PostgresSummaries(self.database).latest(session, None, None)
        assert sorted(line.text for line in latest.lines) == [turn.turn_id for turn in turns[:-1]]
        view = await self.buffer.read(session)
        assert view.turns == (turns[-1],)
        assert view.summary == latest
        async with await psycopg.AsyncConnection.connect(self.owner) as db:
            cursor = await db.execute(
                """
                SELECT (SELECT array_agg(turn_id ORDER BY turn_id) FROM lamina.summary_turns
                        WHERE user_id = %(u)s),
                       (SELECT array_agg(version ORDER BY version) FROM lamina.summaries
                        WHERE user_id = %(u)s)
                """,
                {"u": session.user_id},
            )
            assert await cursor.fetchone() == ([turn.turn_id for turn in turns[:-1]], [1])


@pytest_asyncio.fixture(loop_scope="session")
async def summarizers(valkey_url: str, memory_database: TestDatabase) -> AsyncIterator[Summarizers]:
    client = connect(valkey_url)
    async with memory_database.open("lamina_summarizer") as database:
        yield Summarizers(database, ValkeyBuffer(client, 600), memory_database.owner)
    await client.aclose()


async def test_two_summarizers_that_read_the_same_summary_commit_one(summarizers: Summarizers) -> None:
    turns = await summarizers.buffered(a_user())
    summaries = SummariesReadTogether(summarizers.database, Meeting())
    done = await together(summarizers.run(turns[3], summaries), summarizers.run(turns[4], summaries))
    assert done == [None, None]
    await summarizers.check(turns)


async def test_a_summarizer_that_is_overtaken_covers_no_turn_a_second_time(summarizers: Summarizers) -> None:
    turns = await summarizers.buffered(a_user())
    slow = OvertakenSummaries(summarizers.database)
    slow.overtake = summarizers.run(turns[4], PostgresSummaries(summarizers.database))
    await summarizers.run(turns[3], slow)
    await summarizers.check(turns)


async def test_two_summaries_of_different_turns_are_never_the_same_version(summarizers: Summarizers) -> None:
    turns = await summarizers.buffered(a_user(), 2)
    summaries, meeting = PostgresSummaries(summarizers.database), Meeting()

    async def commit(turn: Turn) -> None:
        line = SummaryLine(kind="digest", text=turn.turn_id, turn_id=turn.turn_id, at=turn.occurred_at)
        summary = Summary(session=turn.session, version=1, lines=(line,), model="test")
        await meeting()
        await summaries.commit(summary, [turn], uuid.uuid4())

    done = await together(*(commit(turn) for turn in turns))
    assert sorted(map(type, done), key=str) == [type(None), StaleVersion]
    [lines] = [(await summaries.latest(turns[0].session, None, None)).lines]
    covered = await summaries.covered(turns[0].session, [turn.turn_id for turn in turns])
    assert {line.turn_id for line in lines} == covered


# --- two compactors on one user ---------------------------------------------------------------------


class CompactionsReadTogether(PostgresCompactions):
    """Gives a batch once two workers have asked for one."""

    def __init__(self, database: Database, meeting: Meeting) -> None:
        super().__init__(database, Settings())
        self._meeting = meeting

    async def batch(self, request: CompactionRequested, size: int) -> CompactionBatch:
        read = await super().batch(request, size)
        if size > 1:
            await self._meeting()
        return read


@dataclass
class Compactors:
    """What compactors share."""

    compactor: Database
    embedder: Database
    owner: str

    async def run(self, request: CompactionRequested, compactions: PostgresCompactions) -> None:
        await on_compaction_requested(
            request,
            compactions=compactions,
            model=OfflineModel(),
            publisher=InMemoryPublisher(),
            tokens=EstimatedTokens(),
            settings=Settings(),
        )

    async def old_episodes(self, user: str) -> None:
        for number in range(1, 4):
            turn = a_turn(user, number)
            text = f"We decided to keep item {number} for good."
            await PostgresEpisodes(self.embedder).record(turn, [a_chunk(0, text)])

    async def check(self, user: str, compactions: int) -> None:
        """Every episode is archived, by the one compaction that covers it."""
        async with await psycopg.AsyncConnection.connect(self.owner) as db:
            cursor = await db.execute(
                """
                SELECT (SELECT count(*) FROM lamina.compactions WHERE user_id = %(u)s),
                       (SELECT count(*) FROM lamina.compaction_episodes WHERE user_id = %(u)s),
                       (SELECT count(*) FROM lamina.compaction_episodes AS c
                        JOIN lamina.episodes AS e
                          ON e.episode_id = c.episode_id AND e.archived_by = c.compaction_id
                        WHERE c.user_id = %(u)s)
                """,
                {"u": user},
            )
            assert await cursor.fetchone() == (compactions, 3, 3)


@pytest_asyncio.fixture(loop_scope="session")
async def compactors(memory_database: TestDatabase) -> AsyncIterator[Compactors]:
    async with (
        memory_database.open("lamina_compactor") as compactor,
        memory_database.open("lamina_episodic_embedder") as embedder,
    ):
        yield Compactors(compactor, embedder, memory_database.owner)


def a_request(user: str, batch: int = 0) -> CompactionRequested:
    before = BEGAN.replace(year=BEGAN.year + 1)
    return CompactionRequested(app=APP, user_id=user, before=before, batch=batch)


async def test_two_compactors_with_one_request_make_one_compaction(compactors: Compactors) -> None:
    user = a_user()
    await compactors.old_episodes(user)
    compactions = CompactionsReadTogether(compactors.compactor, Meeting())
    done = await together(*(compactors.run(a_request(user), compactions) for _ in range(2)))
    assert done == [None, None]
    await compactors.check(user, compactions=1)


async def test_two_compactors_with_two_requests_cover_no_episode_twice(compactors: Compactors) -> None:
    user = a_user()
    await compactors.old_episodes(user)
    compactions = CompactionsReadTogether(compactors.compactor, Meeting())
    requests = [a_request(user, batch) for batch in (1, 2)]
    done = await together(*(compactors.run(request, compactions) for request in requests))
    assert sorted(map(type, done), key=str) == [type(None), StaleVersion]
    for request in requests:  # as Pub/Sub delivers again what was refused
        await compactors.run(request, compactions)
    await compactors.check(user, compactions=1)


# --- two ingests of one turn, and two workers with its event ----------------------------------------


class BufferAskedTogether(ValkeyBuffer):
    """Appends once two workers want to."""

    meeting: Meeting | None = None

    async def append(self, turn: Turn, *, first_event: int = 0, close: bool = True) -> Any:
        if self.meeting is not None:
            await self.meeting()
        return await super().append(turn, first_event=first_event, close=close)


async def test_two_ingests_of_one_turn_leave_it_in_the_buffer_once(valkey_url: str) -> None:
    client = connect(valkey_url)
    buffer, publisher = BufferAskedTogether(client, 600), InMemoryPublisher()
    user = a_user()
    before, turn, after = (a_turn(user, number) for number in (1, 2, 3))
    await ingest(before, buffer=buffer, publisher=publisher)
    buffer.meeting = Meeting()
    accepted = await together(*(ingest(turn, buffer=buffer, publisher=publisher) for _ in range(2)))
    await ingest(after, buffer=buffer, publisher=publisher)
    assert sorted(each.duplicate for each in accepted) == [False, True]
    view = await buffer.read(a_session(user))
    assert view.turns == (before, turn, after)
    events = [event.event_id() for event in publisher.published]
    assert len(events) == 4
    assert len(set(events)) == 3, "both announce the turn, by the same event"
    await client.aclose()


@asynccontextmanager
async def lingering(database: TestDatabase, role: str) -> AsyncGenerator[Lingering]:
    made = Lingering(database.service(role))
    yield made
    await made.close()


async def test_two_extractors_of_one_slot_leave_one_entity_that_holds(memory_database: TestDatabase) -> None:
    user = a_user()
    first, second = a_turn(user, 1), a_turn(user, 2, session="s2")
    async with lingering(memory_database, "lamina_entity_extractor") as database:
        entities = PostgresEntities(database)
        await entities.absorb(first, [], "test", uuid.uuid4())  # connects, so that both begin at once
        database.meeting = Meeting()
        done = await together(
            entities.absorb(first, [a_statement(first, "I prefer dark mode")], "test", uuid.uuid4()),
            entities.absorb(second, [a_statement(second, "I prefer light mode")], "test", uuid.uuid4()),
        )
        assert not [each for each in done if isinstance(each, BaseException)]
        database.meeting = None
        assert [view.text for view in await entities.known(second)] == ["I prefer light mode"]


async def test_two_extractors_with_one_event_say_the_same(memory_database: TestDatabase) -> None:
    turn = a_turn(a_user(), 1, user="I prefer dark mode for the editor.")
    async with lingering(memory_database, "lamina_entity_extractor") as database:
        database.meeting = Meeting()
        publishers = [InMemoryPublisher(), InMemoryPublisher()]
        done = await together(
            *(
                extract(
                    TurnRecorded(turn=turn),
                    entities=PostgresEntities(database),
                    model=OfflineModel(),
                    embedder=HashEmbedder(),
                    publisher=publisher,
                )
                for publisher in publishers
            )
        )
    assert done == [None, None]
    assert publishers[0].published == publishers[1].published
    assert len(publishers[0].published) == 1


async def test_two_embedders_of_neighbouring_turns_see_each_other(memory_database: TestDatabase) -> None:
    user = a_user()
    turns = [a_turn(user, number, user=f"word{number}", assistant=f"reply{number}") for number in (1, 2)]
    async with lingering(memory_database, "lamina_episodic_embedder") as database:
        database.meeting = Meeting()
        done = await together(
            *(
                embed(
                    TurnRecorded(turn=turn),
                    episodes=PostgresEpisodes(database),
                    embedder=HashEmbedder(),
                    publisher=InMemoryPublisher(),
                )
                for turn in turns
            )
        )
    assert done == [None, None]
    async with await psycopg.AsyncConnection.connect(memory_database.owner) as db:
        cursor = await db.execute(
            "SELECT search::text FROM lamina.episodes WHERE user_id = %(u)s ORDER BY occurred_at, ordinal",
            {"u": user},
        )
        woven = [text for (text,) in await cursor.fetchall()]
    assert "word2" in woven[1]
    assert "reply1" in woven[2]


def test_the_races_are_real() -> None:
    """The meeting point lets nobody through alone."""
    meeting = Meeting()

    async def alone() -> None:
        async with asyncio.timeout(0.05):
            await meeting()

    with pytest.raises(TimeoutError):
        asyncio.run(alone())
