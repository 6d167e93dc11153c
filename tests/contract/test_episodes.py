"""What every episode store promises: the one on PostgreSQL and the one in memory."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings

from lamina.event import Speaker
from lamina.model import Turn
from lamina.ports import EpisodeStore
from lamina.postgres.episodes import PostgresEpisodes
from lamina.testing.episodes import InMemoryEpisodes
from tests.builders import a_chunk, a_session, a_turn, a_user, a_vector
from tests.fixtures_postgres import TestDatabase
from tests.strategies import turns

PROPERTY = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest_asyncio.fixture(params=["memory", "postgres"], loop_scope="session")
async def episodes(
    request: pytest.FixtureRequest, memory_database: TestDatabase
) -> AsyncIterator[EpisodeStore]:
    if request.param == "memory":
        yield InMemoryEpisodes()
        return
    async with memory_database.open("lamina_episodic_embedder") as database:
        yield PostgresEpisodes(database)


@given(wild=turns())
@PROPERTY
async def test_a_turn_comes_back_equal_whatever_its_events_hold(
    episodes: EpisodeStore, wild: dict[str, Any]
) -> None:
    turn = Turn.model_validate({**wild, "user_id": a_user()})
    await episodes.record(turn, [a_chunk(0, "anything")])
    back = await episodes.turn(turn.session, turn.turn_id)
    assert back == turn
    assert back is not None
    assert back.encode() == turn.encode()


async def test_unknown_fields_of_a_turn_and_long_numbers_come_back(episodes: EpisodeStore) -> None:
    turn = a_turn(
        a_user(),
        project_id="CloudRetail",
        previous_session_id="s0",
        trace={"id": "\x00", "sizes": [10**60, 1.0, 1e-7, -0.0], "none": None},
        from_later=None,
    )
    await episodes.record(turn, [])
    back = await episodes.turn(turn.session, turn.turn_id)
    assert back is not None
    assert back.encode() == turn.encode()


async def test_there_is_no_turn_that_nobody_recorded(episodes: EpisodeStore) -> None:
    turn = a_turn(a_user())
    await episodes.record(turn, [])
    assert await episodes.turn(turn.session, "t99") is None
    assert await episodes.turn(a_session(a_user()), turn.turn_id) is None


async def test_chunks_wait_for_their_vectors(episodes: EpisodeStore) -> None:
    turn = a_turn(a_user())
    chunks = [a_chunk(0, "question"), a_chunk(1, "answer", Speaker.AGENT)]
    assert list(await episodes.record(turn, chunks)) == [0, 1]
    await episodes.embed(turn, {1: a_vector()}, "model-1", uuid.uuid4())
    assert list(await episodes.record(turn, chunks)) == [0]
    await episodes.embed(turn, {0: a_vector()}, "model-1", uuid.uuid4())
    assert list(await episodes.record(turn, chunks)) == []


async def test_embedding_twice_is_harmless(episodes: EpisodeStore) -> None:
    turn, event_id = a_turn(a_user()), uuid.uuid4()
    await episodes.record(turn, [a_chunk(0, "question")])
    for _ in range(2):
        await episodes.embed(turn, {0: a_vector()}, "model-1", event_id)
    assert list(await episodes.record(turn, [a_chunk(0, "question")])) == []


async def test_the_first_recording_of_a_turn_stands(episodes: EpisodeStore) -> None:
    user = a_user()
    first, other = a_turn(user, assistant="first"), a_turn(user, assistant="other")
    await episodes.record(first, [a_chunk(0, "first")])
    assert list(await episodes.record(other, [a_chunk(0, "other"), a_chunk(1, "more")])) == [0]
    assert await episodes.turn(first.session, first.turn_id) == first


async def test_a_turn_without_text_is_logged_all_the_same(episodes: EpisodeStore) -> None:
    turn = a_turn(a_user())
    assert list(await episodes.record(turn, [])) == []
    await episodes.embed(turn, {}, "model-1", uuid.uuid4())
    assert await episodes.turn(turn.session, turn.turn_id) == turn


async def test_turns_of_a_session_can_be_recorded_at_once(episodes: EpisodeStore) -> None:
    user = a_user()
    recorded = [a_turn(user, number) for number in range(10)]
    await asyncio.gather(
        *(episodes.record(turn, [a_chunk(0, f"said in {turn.turn_id}")]) for turn in recorded * 2)
    )
    for turn in recorded:
        assert await episodes.turn(turn.session, turn.turn_id) == turn
