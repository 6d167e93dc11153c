"""The summarizer on a real Valkey and a real PostgreSQL, as its own database role."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest_asyncio

from lamina.events import TurnRecorded
from lamina.model import SessionKey, Turn
from lamina.ports import BufferView, SummaryStore
from lamina.postgres.database import Database
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.summaries import PostgresSummaries
from lamina.settings import Settings
from lamina.testing.clock import StoppedClock
from lamina.testing.publisher import InMemoryPublisher
from lamina.valkey.buffer import ValkeyBuffer, session_keys
from lamina.valkey.client import Client, connect
from lamina_services.summarizer.handler import on_turn_recorded
from tests.builders import a_session, a_turn, a_user
from tests.fixtures_postgres import TestDatabase
from tests.fixtures_valkey import valkey_url
from tests.unit.summarizer_world import ModelThatKeepsEverything, Words

__all__ = ["valkey_url"]


@dataclass
class Running:
    """The summarizer's parts, and the embedder's log."""

    valkey: Client
    buffer: ValkeyBuffer
    summaries: SummaryStore
    log: PostgresEpisodes
    publisher: InMemoryPublisher = field(default_factory=InMemoryPublisher)

    async def summarise(self, turn: Turn) -> None:
        await on_turn_recorded(
            TurnRecorded(turn=turn),
            buffer=self.buffer,
            summaries=self.summaries,
            model=ModelThatKeepsEverything(),
            publisher=self.publisher,
            tokens=Words(),
            clock=StoppedClock(),
            settings=Settings(summary_trigger_turns=3, summary_keep_turns=2),
        )

    async def state(self, session: SessionKey) -> tuple[list[str], BufferView]:
        summary = await self.summaries.latest(session, None, None)
        return [line.text for line in summary.lines], await self.buffer.read(session)


@pytest_asyncio.fixture(loop_scope="session")
async def running(valkey_url: str, memory_database: TestDatabase) -> AsyncIterator[Running]:
    client = connect(valkey_url)
    async with (
        memory_database.open("lamina_summarizer") as writing,
        memory_database.open("lamina_episodic_embedder") as logging,
    ):
        yield Running(client, ValkeyBuffer(client, 600), summaries(writing), PostgresEpisodes(logging))
    await client.aclose()


def summaries(database: Database) -> SummaryStore:
    return PostgresSummaries(database)


async def test_five_workers_on_one_session_lose_neither_a_turn_nor_a_summary(running: Running) -> None:
    user = a_user()
    turns = [a_turn(user, number) for number in range(10, 30)]
    for start in range(0, 20, 5):
        batch = turns[start : start + 5]
        await asyncio.gather(*(running.buffer.append(turn) for turn in batch))
        await asyncio.gather(*(running.summarise(turn) for turn in batch))
    said, view = await running.state(a_session(user))
    assert [*said, *(turn.turn_id for turn in view.turns)] == [turn.turn_id for turn in turns]
    assert view.summary == await running.summaries.latest(a_session(user), None, None)
    assert await running.summaries.covered(a_session(user), said) == set(said)


async def test_a_lost_session_gets_back_what_no_summary_covers(running: Running) -> None:
    user = a_user()
    session = a_session(user)
    turns = [a_turn(user, number) for number in range(6)]
    for turn in turns[:5]:
        await running.buffer.append(turn)
        await running.log.record(turn, [])
        await running.summarise(turn)
    await running.valkey.delete(*session_keys(session))
    await running.buffer.append(turns[5])
    await running.summarise(turns[5])
    said, view = await running.state(session)
    assert said == ["t0", "t1", "t2", "t3"]
    assert view.turns == (turns[4], turns[5])


async def test_a_session_that_comes_back_as_it_was_a_while_ago_loses_nothing(running: Running) -> None:
    user = a_user()
    session = a_session(user)
    turns = [a_turn(user, number) for number in range(10, 18)]

    async def take(turn: Turn) -> None:
        await running.buffer.append(turn)
        await running.log.record(turn, [])
        await running.summarise(turn)

    for turn in turns[:4]:
        await take(turn)
    snapshot = {key: await running.valkey.dump(key) for key in session_keys(session)}
    for turn in turns[4:6]:
        await take(turn)
    for key, value in snapshot.items():
        await running.valkey.delete(key)
        if value is not None:
            await running.valkey.restore(key, 0, value)
    for turn in turns[6:]:
        await take(turn)
    said, view = await running.state(session)
    held = [turn.turn_id for turn in view.turns]
    assert sorted([*said, *held]) == [turn.turn_id for turn in turns]


async def test_a_new_session_starts_from_the_summary_of_the_one_before(running: Running) -> None:
    user = a_user()
    for number in range(3):
        await running.buffer.append(a_turn(user, number))
    await running.summarise(a_turn(user, 2))
    second = [
        a_turn(user, 10 + number, session="s2", previous_session_id="s1" if number == 0 else None)
        for number in range(3)
    ]
    for turn in second:
        await running.buffer.append(turn)
    await running.summarise(second[2])
    said, _ = await running.state(a_session(user, "s2"))
    assert said == ["t0", "t10"]
