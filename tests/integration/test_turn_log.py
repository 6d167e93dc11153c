"""What follows from the log is the same in whatever order its turns arrive."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.model import Summary, SummaryLine, Turn
from lamina.postgres.database import Database, Query
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.summaries import PostgresSummaries
from tests.builders import APP, BEGAN, a_chunk, a_session, a_turn, a_user, a_vector
from tests.fixtures_postgres import TestDatabase

PROPERTY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass
class Stores:
    episodes: PostgresEpisodes
    summaries: PostgresSummaries
    reading: Database

    async def record(self, turn: Turn, *texts: str) -> None:
        await self.episodes.record(turn, [a_chunk(n, text) for n, text in enumerate(texts)])

    async def rows(self, user: str, query: Query) -> list[dict[str, Any]]:
        [rows] = await self.reading.read(APP, user, [query])
        return rows


@pytest_asyncio.fixture(loop_scope="session")
async def stores(memory_database: TestDatabase) -> AsyncIterator[Stores]:
    async with (
        memory_database.open("lamina_episodic_embedder", size=2) as embedder,
        memory_database.open("lamina_summarizer", size=2) as summarizer,
        memory_database.open("lamina_context", size=2) as context,
    ):
        yield Stores(PostgresEpisodes(embedder), PostgresSummaries(summarizer), context)


WOVEN: Query = (
    """
    SELECT session_id, turn_id, ordinal, search::text
    FROM lamina.episodes
    ORDER BY session_id, occurred_at, turn_id, ordinal
    """,
    {},
)


async def test_a_chunk_is_found_by_its_neighbours_words_too_but_ranks_below_them(stores: Stores) -> None:
    user = a_user()
    await stores.record(a_turn(user, 1), "Which database shall we use?", "PostgreSQL, I think")
    await stores.record(a_turn(user, 2), "Agreed")
    await stores.record(a_turn(user, 3), "Something else")
    found = await stores.rows(
        user,
        (
            """
            SELECT turn_id, ordinal, ts_rank('{0.5, 0.2, 0.4, 1}', search, q) AS rank
            FROM lamina.episodes, to_tsquery('english', 'postgresql') AS q
            WHERE search @@ q
            ORDER BY rank DESC, turn_id, ordinal
            """,
            {},
        ),
    )
    assert [(row["turn_id"], row["ordinal"]) for row in found] == [("t1", 1), ("t1", 0), ("t2", 0)]
    assert found[0]["rank"] > found[1]["rank"]


@given(
    turns=st.lists(
        st.tuples(
            st.integers(0, 3),  # several turns may begin at the same moment
            st.sampled_from(["s1", "s2"]),
            st.lists(st.sampled_from(["alpha beta", "beta gamma", "the", "delta 3.11"]), max_size=3),
        ),
        min_size=1,
        max_size=6,
    ),
    data=st.data(),
)
@PROPERTY
async def test_search_vectors_end_the_same_in_any_order_of_delivery(
    stores: Stores, turns: list[tuple[int, str, list[str]]], data: st.DataObject
) -> None:
    numbers = list(range(len(turns)))
    deliveries = data.draw(
        st.permutations(numbers + data.draw(st.lists(st.sampled_from(numbers), max_size=3)))
    )

    async def deliver(user: str, order: list[int]) -> list[dict[str, Any]]:
        for number in order:
            minute, session, texts = turns[number]
            turn = a_turn(user, number, session=session, occurred_at=BEGAN + timedelta(minutes=minute))
            await stores.record(turn, *texts)
        return await stores.rows(user, WOVEN)

    in_order = sorted(numbers, key=lambda number: (turns[number][0], f"t{number}"))
    assert await deliver(a_user(), list(deliveries)) == await deliver(a_user(), in_order)


async def test_vectors_survive_when_a_neighbour_arrives(stores: Stores) -> None:
    user = a_user()
    turn = a_turn(user, 1)
    await stores.record(turn, "alpha")
    await stores.episodes.embed(turn, {0: a_vector()}, "model-1", uuid.uuid4())
    await stores.record(a_turn(user, 2), "beta")
    assert list(await stores.episodes.record(turn, [a_chunk(0, "alpha")])) == []


named = st.sampled_from([None, "P", "Q"])


@given(names=st.lists(st.tuples(named, named), min_size=1, max_size=5), data=st.data())
@PROPERTY
async def test_a_session_is_what_its_earliest_turns_say(
    stores: Stores, names: list[tuple[str | None, str | None]], data: st.DataObject
) -> None:
    user = a_user()
    for number in data.draw(st.permutations(range(len(names)))):
        project, previous = names[number]
        await stores.record(a_turn(user, number, project_id=project, previous_session_id=previous))
    query: Query = ("SELECT project_id, previous_session_id, first_seen FROM lamina.sessions", {})
    assert await stores.rows(user, query) == [
        {
            "project_id": next((project for project, _ in names if project), None),
            "previous_session_id": next((previous for _, previous in names if previous), None),
            "first_seen": BEGAN,
        }
    ]


def a_summary(user: str, session: str) -> Summary:
    line = SummaryLine(kind="fact", text=f"of {session}", turn_id="t1", at=BEGAN)
    return Summary(session=a_session(user, session), version=1, lines=(line,), model="test-1")


async def test_a_summary_is_inherited_through_sessions_that_have_none(stores: Stores) -> None:
    user = a_user()
    await stores.summaries.commit(a_summary(user, "s1"), [a_turn(user, 1)], uuid.uuid4())
    await stores.record(a_turn(user, 2, session="s2", previous_session_id="s1"))
    await stores.record(a_turn(user, 3, session="s3", previous_session_id="s2"))
    # Whoever names no predecessor gets the one that the session's turns named.
    for previous in ("s2", None):
        inherited = await stores.summaries.latest(a_session(user, "s3"), previous, None)
        assert (inherited.version, inherited.lines[0].text) == (0, "of s1")


async def test_sessions_that_name_each_other_end_with_an_empty_summary(stores: Stores) -> None:
    user = a_user()
    await stores.record(a_turn(user, 1, session="s1", previous_session_id="s2"))
    await stores.record(a_turn(user, 2, session="s2", previous_session_id="s1"))
    assert (await stores.summaries.latest(a_session(user, "s1"), "s2", None)).lines == ()


async def test_logged_turns_wait_until_a_summary_covers_them(stores: Stores) -> None:
    user = a_user()
    turns = [a_turn(user, number) for number in (1, 2, 3)]
    for turn in reversed(turns):
        await stores.record(turn, "text")
    assert list(await stores.summaries.uncovered(a_session(user))) == turns
    await stores.summaries.commit(a_summary(user, "s1"), turns[:2], uuid.uuid4())
    assert list(await stores.summaries.uncovered(a_session(user))) == turns[2:]


async def test_a_commit_logs_turns_that_the_embedder_has_not_seen(stores: Stores) -> None:
    user = a_user()
    turn = a_turn(user, 1, user_said={"x": "\x00"})
    await stores.summaries.commit(a_summary(user, "s1"), [turn], uuid.uuid4())
    assert await stores.episodes.turn(turn.session, "t1") == turn
    assert list(await stores.episodes.record(turn, [a_chunk(0, "text")])) == [0]
