"""What every index of dead letters promises, seen through receipts: on PostgreSQL and in memory."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.model import SessionKey
from lamina.ports import DeadLetterIndex, Evidence, IndexedLetter, ReceiptReader
from lamina.postgres.dead_letters import PostgresDeadLetterIndex
from lamina.postgres.receipts import PostgresReceipts
from lamina.testing.receipts import InMemoryDeadLetterIndex, InMemoryReceipts
from tests.builders import APP, a_session, a_user
from tests.fixtures_postgres import TestDatabase

PARKED = datetime(2026, 3, 1, 12, 30, 0, 123000, tzinfo=UTC)
PROPERTY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass
class Both:
    index: DeadLetterIndex
    receipts: ReceiptReader


@pytest_asyncio.fixture(params=["memory", "postgres"], loop_scope="session")
async def both(request: pytest.FixtureRequest, memory_database: TestDatabase) -> AsyncIterator[Both]:
    if request.param == "memory":
        index = InMemoryDeadLetterIndex()
        yield Both(index, InMemoryReceipts(index))
        return
    async with (
        memory_database.open("lamina_dead_letter_recorder", size=2) as writing,
        memory_database.open("lamina_context", size=2) as reading,
    ):
        yield Both(PostgresDeadLetterIndex(writing), PostgresReceipts(reading))


def a_letter(session: SessionKey, turn_id: str = "t1") -> IndexedLetter:
    return IndexedLetter(
        **session.model_dump(),
        turn_id=turn_id,
        subscription="summarizer",
        error="ModelRefused",
        reason="the model declined",
        failures=1,
        service="summarizer",
        parked_at=PARKED,
        first_seen=PARKED - timedelta(minutes=5),
        trace_id="0af7651916cd43dd8448eb211c80319c",
        event_id="e1",
    )


async def test_a_letter_comes_back_as_it_was(both: Both) -> None:
    session = a_session(a_user())
    letter = a_letter(session)
    await both.index.record(letter)
    await both.index.record(letter)
    assert await both.receipts.evidence(session, "t1") == Evidence(letters=(letter,))


async def test_each_subscription_has_its_own_the_first_parked_first(both: Both) -> None:
    session = a_session(a_user())
    later = replace(a_letter(session), parked_at=PARKED + timedelta(seconds=1))
    earlier = replace(a_letter(session), subscription="entity-extractor")
    for letter in (later, earlier):
        await both.index.record(letter)
    assert (await both.receipts.evidence(session, "t1")).letters == (earlier, later)


async def test_another_user_or_session_or_turn_sees_nothing_of_it(both: Both) -> None:
    user = a_user()
    await both.index.record(a_letter(a_session(user)))
    assert await both.receipts.evidence(a_session(a_user()), "t1") == Evidence()
    assert await both.receipts.evidence(a_session(user, "s2"), "t1") == Evidence()
    assert await both.receipts.evidence(a_session(user), "t2") == Evidence()
    assert await both.receipts.sessions_of(APP, a_user(), "t1") == []


async def test_a_turn_is_found_without_its_session(both: Both) -> None:
    user = a_user()
    for session in ("s2", "s1"):
        await both.index.record(a_letter(a_session(user, session)))
    assert await both.receipts.sessions_of(APP, user, "t1") == ["s1", "s2"]
    assert await both.receipts.sessions_of(APP, user, "t2") == []


async def test_a_letter_that_did_not_say_its_session_belongs_to_whichever_is_asked_for(both: Both) -> None:
    session = a_session(a_user())
    letter = replace(a_letter(session), session_id="")
    await both.index.record(letter)
    assert await both.receipts.sessions_of(APP, session.user_id, "t1") == [""]
    assert (await both.receipts.evidence(session, "t1")).letters == (letter,)


@PROPERTY
@given(order=st.permutations(range(4)), again=st.lists(st.integers(0, 3), max_size=3))
async def test_letters_of_one_turn_in_any_order_and_twice_leave_the_latest(
    both: Both, order: list[int], again: list[int]
) -> None:
    """Also where the last of them counts its failures anew, as a turn that is published again does."""
    session = a_session(a_user())
    letters = [
        replace(
            a_letter(session), failures=count, parked_at=PARKED + timedelta(hours=hours), reason=str(number)
        )
        for number, (hours, count) in enumerate([(0, 1), (1, 2), (1, 3), (2, 1)])
    ]
    for number in (*order, *again):
        await both.index.record(letters[number])
    assert (await both.receipts.evidence(session, "t1")).letters == (letters[3],)
