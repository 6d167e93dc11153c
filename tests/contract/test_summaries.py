"""What every summary store promises: the one on PostgreSQL and the one in memory."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
import pytest_asyncio

from lamina.errors import StaleVersion
from lamina.model import SessionKey, Summary, SummaryLine, Turn
from lamina.ports import SummaryStore
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.summaries import PostgresSummaries
from lamina.testing.summaries import InMemorySummaries
from tests.builders import BEGAN, a_session, a_turn, a_user
from tests.fixtures_postgres import TestDatabase


@pytest_asyncio.fixture(params=["memory", "postgres"], loop_scope="session")
async def summaries(
    request: pytest.FixtureRequest, memory_database: TestDatabase
) -> AsyncIterator[SummaryStore]:
    if request.param == "memory":
        yield InMemorySummaries()
        return
    async with memory_database.open("lamina_summarizer") as database:
        yield PostgresSummaries(database)


def a_summary(session: SessionKey, version: int, *texts: str) -> Summary:
    lines = tuple(
        SummaryLine(kind="rule", text=text, turn_id="t1", ordinal=ordinal, at=BEGAN + timedelta(minutes=1))
        for ordinal, text in enumerate(texts or (f"What was said up to version {version}",))
    )
    return Summary(session=session, version=version, lines=lines, model="test-1")


async def commit(store: SummaryStore, summary: Summary, turns: Sequence[Turn] = ()) -> None:
    await store.commit(summary, turns, uuid.uuid4())


async def test_a_session_begins_with_an_empty_summary(summaries: SummaryStore) -> None:
    session = a_session(a_user())
    assert await summaries.latest(session, None, None) == Summary(session=session, version=0)


async def test_the_highest_version_is_the_latest(summaries: SummaryStore) -> None:
    session = a_session(a_user())
    for version in (1, 2):
        await commit(summaries, a_summary(session, version))
    assert await summaries.latest(session, None, None) == a_summary(session, 2)


async def test_lines_come_back_as_they_were(summaries: SummaryStore) -> None:
    session = a_session(a_user())
    summary = a_summary(session, 1, "Nunca migrar en producción", "「暗い」", '"quoted"\n- {line}', "🧾")
    await commit(summaries, summary)
    assert await summaries.latest(session, None, None) == summary


async def test_a_new_session_inherits_the_previous_sessions_lines_as_version_zero(
    summaries: SummaryStore,
) -> None:
    user = a_user()
    previous, session = a_session(user, "s1"), a_session(user, "s2")
    await commit(summaries, a_summary(previous, 1))
    inherited = await summaries.latest(session, "s1", None)
    assert inherited == a_summary(session, 0).model_copy(update={"lines": a_summary(previous, 1).lines})


async def test_nothing_about_another_project_is_inherited(summaries: SummaryStore) -> None:
    user = a_user()
    whole = a_summary(a_session(user, "s1"), 1, "everywhere", "of the shop", "of the bank")
    projects = (None, "shop", "bank")
    lines = [line.model_copy(update={"project_id": p}) for line, p in zip(whole.lines, projects, strict=True)]
    await commit(summaries, whole.model_copy(update={"lines": tuple(lines)}))
    inherited = await summaries.latest(a_session(user, "s2"), "s1", "shop")
    assert [line.text for line in inherited.lines] == ["everywhere", "of the shop"]
    own = await summaries.latest(a_session(user, "s1"), None, "shop")
    assert len(own.lines) == 3


async def test_its_own_summary_goes_before_an_inherited_one(summaries: SummaryStore) -> None:
    user = a_user()
    await commit(summaries, a_summary(a_session(user, "s1"), 1, "old"))
    await commit(summaries, a_summary(a_session(user, "s2"), 1, "new"))
    assert (await summaries.latest(a_session(user, "s2"), "s1", None)).lines[0].text == "new"


async def test_nothing_is_inherited_from_another_users_session(summaries: SummaryStore) -> None:
    await commit(summaries, a_summary(a_session(a_user(), "s1"), 1))
    assert (await summaries.latest(a_session(a_user(), "s2"), "s1", None)).lines == ()


async def test_the_turns_of_a_committed_version_are_covered(summaries: SummaryStore) -> None:
    user = a_user()
    session = a_session(user)
    await commit(summaries, a_summary(session, 1), [a_turn(user, 1), a_turn(user, 2)])
    assert await summaries.covered(session, ["t1", "t2", "t3"]) == {"t1", "t2"}
    assert await summaries.covered(session, []) == frozenset()
    assert await summaries.covered(a_session(user, "s2"), ["t1"]) == frozenset()


async def test_a_version_that_exists_is_stale(summaries: SummaryStore) -> None:
    user = a_user()
    session = a_session(user)
    await commit(summaries, a_summary(session, 1), [a_turn(user, 1)])
    with pytest.raises(StaleVersion):
        await commit(summaries, a_summary(session, 1, "another"), [a_turn(user, 2)])
    assert await summaries.latest(session, None, None) == a_summary(session, 1)
    assert await summaries.covered(session, ["t1", "t2"]) == {"t1"}


async def test_a_version_that_skips_one_is_stale(summaries: SummaryStore) -> None:
    session = a_session(a_user())
    with pytest.raises(StaleVersion):
        await commit(summaries, a_summary(session, 2))


async def test_a_turn_is_covered_once(summaries: SummaryStore) -> None:
    user = a_user()
    session = a_session(user)
    await commit(summaries, a_summary(session, 1), [a_turn(user, 1)])
    with pytest.raises(StaleVersion):
        await commit(summaries, a_summary(session, 2), [a_turn(user, 1), a_turn(user, 2)])
    assert (await summaries.latest(session, None, None)).version == 1


async def test_of_workers_that_commit_at_once_one_wins(summaries: SummaryStore) -> None:
    user = a_user()
    session = a_session(user)
    outcomes = await asyncio.gather(
        *(commit(summaries, a_summary(session, 1, f"by {n}"), [a_turn(user, n)]) for n in range(6)),
        return_exceptions=True,
    )
    assert [outcome for outcome in outcomes if not isinstance(outcome, StaleVersion)] == [None]
    winner = (await summaries.latest(session, None, None)).lines[0].text.removeprefix("by ")
    assert await summaries.covered(session, [f"t{n}" for n in range(6)]) == {f"t{winner}"}


async def test_covered_turns_are_in_the_log_and_do_not_wait(summaries: SummaryStore) -> None:
    user = a_user()
    await commit(summaries, a_summary(a_session(user), 1), [a_turn(user, 1)])
    assert list(await summaries.uncovered(a_session(user))) == []


async def test_turns_that_the_caller_holds_do_not_come_again(
    memory_database: TestDatabase,
) -> None:
    user = a_user()
    turns = [a_turn(user, number) for number in range(1, 6)]
    memory = InMemorySummaries()
    memory.log[a_session(user)] = {turn.turn_id: turn for turn in turns}
    async with (
        memory_database.open("lamina_summarizer") as writing,
        memory_database.open("lamina_episodic_embedder") as logging,
    ):
        for turn in turns:
            await PostgresEpisodes(logging).record(turn, [])
        for store in (memory, PostgresSummaries(writing)):
            await commit(store, a_summary(a_session(user), 1), turns[:2])
            assert list(await store.uncovered(a_session(user))) == turns[2:]
            assert list(await store.uncovered(a_session(user), beside=["t1", "t4", "t9"])) == [
                turns[2],
                turns[4],
            ]


async def test_a_turn_set_aside_is_covered_and_may_be_covered_in_earnest_later(
    summaries: SummaryStore,
) -> None:
    user = a_user()
    session, turns = a_session(user), [a_turn(user, n) for n in range(2)]
    ids = [turn.turn_id for turn in turns]
    await summaries.commit(a_summary(session, 1), turns, uuid.uuid4(), set_aside=ids[1:])
    assert await summaries.covered(session, ids) == set(ids)
    assert [await summaries.is_set_aside(session, turn_id) for turn_id in ids] == [False, True]
    await commit(summaries, a_summary(session, 2), turns[1:])
    assert not await summaries.is_set_aside(session, ids[1])
    with pytest.raises(StaleVersion):
        await commit(summaries, a_summary(session, 3), turns[1:])
    assert await summaries.latest(session, None, None) == a_summary(session, 2)
