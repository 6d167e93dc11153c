"""What every store promises about what is forgotten: those on PostgreSQL and those in memory."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from lamina.errors import Forgotten, StaleVersion
from lamina.forgetting import Selection, Tombstone, slot_id, words_id
from lamina.model import Scope, Summary, SummaryLine, Turn
from lamina.ports import EntityStore, EpisodeStore, SummaryStore
from lamina.postgres.database import Database
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.forgetting import PostgresForgetting
from lamina.postgres.summaries import PostgresSummaries
from lamina.testing.entities import InMemoryEntities
from lamina.testing.episodes import InMemoryEpisodes
from lamina.testing.summaries import InMemorySummaries
from lamina.testing.tombstones import InMemoryTombstones
from tests.builders import APP, BEGAN, a_chunk, a_statement, a_turn, a_user, a_vector
from tests.fixtures_postgres import TestDatabase

AT = BEGAN + timedelta(minutes=2, seconds=30)
"""Between the second turn and the third."""


@dataclass
class Stores:
    summaries: SummaryStore
    entities: EntityStore
    episodes: EpisodeStore
    forget: Callable[[Selection], Awaitable[None]]


def _in_memory() -> Stores:
    stones = InMemoryTombstones()

    async def forget(chosen: Selection) -> None:
        owner = chosen.session_id or chosen.project_id or ""
        assert chosen.scope != "entity"
        stone = Tombstone(scope=chosen.scope, owner=owner, forgotten_at=chosen.before or AT)
        stones.add(chosen.app, chosen.user_id, stone)

    return Stores(InMemorySummaries(stones), InMemoryEntities(stones), InMemoryEpisodes(stones), forget)


async def _on_postgres(database: TestDatabase, closing: AsyncExitStack) -> Stores:
    async def role(name: str) -> Database:
        return await closing.enter_async_context(database.open(f"lamina_{name}", size=2))

    operator = PostgresForgetting(await role("operator"))

    async def forget(chosen: Selection) -> None:
        await operator.forget(chosen)

    return Stores(
        PostgresSummaries(await role("summarizer")),
        PostgresEntities(await role("entity_extractor")),
        PostgresEpisodes(await role("episodic_embedder")),
        forget,
    )


@pytest_asyncio.fixture(params=["memory", "postgres"], loop_scope="session")
async def stores(request: pytest.FixtureRequest, memory_database: TestDatabase) -> AsyncIterator[Stores]:
    async with AsyncExitStack() as closing:
        yield _in_memory() if request.param == "memory" else await _on_postgres(memory_database, closing)


def a_summary(turn: Turn, generation: int = 0) -> Summary:
    line = SummaryLine(kind="digest", text="said", turn_id=turn.turn_id, at=turn.occurred_at)
    return Summary(session=turn.session, version=1, lines=(line,), model="test", generation=generation)


@pytest.mark.parametrize(
    "chosen", [{}, {"session_id": "s1"}, {"project_id": "shop"}], ids=["user", "session", "project"]
)
async def test_a_forgotten_turn_is_refused_by_every_store(stores: Stores, chosen: dict[str, Any]) -> None:
    user = a_user()
    turn = a_turn(user, 1, project_id="shop")
    await stores.forget(Selection(APP, user, **chosen, before=AT))
    generation = (await stores.summaries.latest(turn.session, None, None)).generation
    attempts: list[Awaitable[object]] = [
        stores.episodes.record(turn, [a_chunk(0, "text")]),
        stores.episodes.embed(turn, {0: a_vector()}, "model", uuid.uuid4()),
        stores.entities.absorb(turn, [a_statement(turn, "dark")], "test", uuid.uuid4()),
        stores.entities.absorbed(turn, uuid.uuid4()),
        stores.summaries.commit(a_summary(turn, generation), [turn], uuid.uuid4()),
    ]
    for attempt in attempts:
        with pytest.raises(Forgotten):
            await attempt
    assert await stores.episodes.turn(turn.session, turn.turn_id) is None
    assert await stores.summaries.uncovered(turn.session) == []


@pytest.mark.parametrize(
    "other",
    [
        a_turn("later", 3, project_id="shop"),
        a_turn("elsewhere", 1, session="s2", project_id="shop"),
    ],
    ids=["a later one", "one of another session"],
)
async def test_another_turn_is_welcome(stores: Stores, other: Turn) -> None:
    user = a_user()
    turn = other.model_copy(update={"user_id": user})
    await stores.forget(Selection(APP, user, session_id="s1", before=AT))
    assert await stores.episodes.record(turn, [a_chunk(0, "text")]) == [0]
    assert (await stores.entities.absorb(turn, [a_statement(turn, "dark")], "test", uuid.uuid4())).changed
    assert await stores.summaries.forgotten([turn]) == frozenset()


async def test_the_summarizer_learns_which_of_its_turns_are_forgotten(stores: Stores) -> None:
    user = a_user()
    turns = [a_turn(user, number) for number in (1, 2, 3)]
    assert await stores.summaries.forgotten(turns) == frozenset()
    await stores.forget(Selection(APP, user, session_id="s1", before=AT))
    assert await stores.summaries.forgotten(turns) == {"t1", "t2"}
    assert await stores.summaries.forgotten([]) == frozenset()


async def test_a_summary_from_before_something_was_forgotten_is_stale_even_in_another_session(
    stores: Stores,
) -> None:
    user = a_user()
    turn = a_turn(user, 3, session="heir")
    begun = await stores.summaries.latest(turn.session, "s1", None)
    await stores.forget(Selection(APP, user, session_id="s1", before=AT))
    with pytest.raises(StaleVersion):
        await stores.summaries.commit(a_summary(turn, begun.generation), [turn], uuid.uuid4())
    again = await stores.summaries.latest(turn.session, "s1", None)
    stored = await stores.summaries.commit(a_summary(turn, again.generation), [turn], uuid.uuid4())
    assert stored.version == 1


async def test_another_user_of_the_same_names_is_not_concerned(stores: Stores) -> None:
    user, other = a_user(), a_user()
    await stores.forget(Selection(APP, user, before=AT))
    turn = a_turn(other, 1)
    assert await stores.episodes.record(turn, []) == []
    assert await stores.summaries.forgotten([turn]) == frozenset()


def test_a_tombstone_holds_none_of_the_words_that_it_forgets() -> None:
    turn = a_turn("ana", 1)
    said = a_statement(turn, "The alarm code is 4711", scope=Scope.SESSION)
    name = slot_id(APP, "ana", "/".join(said.slot)).hex + words_id(APP, "ana", "t1", said.text).hex
    assert "4711" not in name
    assert "theme" not in name
