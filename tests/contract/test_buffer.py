"""What every buffer promises: the one on Valkey, on a Valkey cluster, and the one in memory."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.errors import Forgotten, InvalidEvent
from lamina.forgetting import Tombstone
from lamina.model import SessionKey, Summary, SummaryLine, Turn
from lamina.ports import Buffer, BufferTrace
from lamina.testing.buffer import InMemoryBuffer
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import connect
from tests.fixtures_valkey import valkey_cluster_url, valkey_url

__all__ = ["valkey_cluster_url", "valkey_url"]

BEGAN = datetime(2026, 3, 1, 9, tzinfo=UTC)
PROPERTY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest_asyncio.fixture(params=["memory", "valkey", "cluster"])
async def buffer(request: pytest.FixtureRequest) -> AsyncIterator[Buffer]:
    if request.param == "memory":
        yield InMemoryBuffer()
        return
    fixture = "valkey_url" if request.param == "valkey" else "valkey_cluster_url"
    adapter = ValkeyBuffer(connect(request.getfixturevalue(fixture)), ttl_s=600)
    yield adapter
    await adapter.aclose()


def a_session() -> SessionKey:
    return SessionKey(app="shop", user_id="ana", session_id=f"s-{uuid.uuid4()}")


def a_turn(
    session: SessionKey, number: int, events: list[dict[str, Any]] | None = None, **fields: Any
) -> Turn:
    said = [{"author": "user", "content": {"role": "user", "parts": [{"text": f"message {number}"}]}}]
    return Turn.model_validate(
        {
            **session.model_dump(),
            "turn_id": f"t{number}",
            "occurred_at": BEGAN + timedelta(minutes=number),
            "events": said if events is None else events,
            **fields,
        }
    )


def piece(turn: Turn, first: int, stop: int) -> Turn:
    return turn.model_copy(update={"events": turn.events[first:stop]})


def a_summary(session: SessionKey, version: int) -> Summary:
    line = SummaryLine(kind="digest", text=f"Versión {version}: 摘要", turn_id="t0", at=BEGAN)
    return Summary(session=session, version=version, lines=(line,), model="test")


def ids(turns: tuple[Turn, ...]) -> list[str]:
    return [turn.turn_id for turn in turns]


# --- appending and reading -------------------------------------------------------------------------


async def test_an_unknown_session_is_empty_and_says_that_it_is_unknown(buffer: Buffer) -> None:
    view = await buffer.read(a_session())
    assert (view.known, view.turns, view.open_turns, view.summary) == (False, (), frozenset(), None)


async def test_a_turn_comes_out_equal_to_what_went_in(buffer: Buffer) -> None:
    turn = a_turn(
        a_session(),
        1,
        project_id="CloudRetail",
        previous_session_id="before",
        colour={"a": [None]},
        size=None,
    )
    appended = await buffer.append(turn)
    assert (appended.duplicate, appended.closed) == (False, turn)
    view = await buffer.read(turn.session)
    assert (view.known, view.turns, view.open_turns) == (True, (turn,), frozenset())
    assert view.turns[0].encode() == turn.encode()


async def test_turns_are_ordered_by_when_they_occurred_and_not_by_when_they_arrived(buffer: Buffer) -> None:
    session = a_session()
    for number in (3, 1, 2):
        await buffer.append(a_turn(session, number))
    assert ids((await buffer.read(session)).turns) == ["t1", "t2", "t3"]


async def test_turns_of_one_moment_are_ordered_by_id_and_a_microsecond_counts(buffer: Buffer) -> None:
    session = a_session()
    moments = {"b": 0, "a": 0, "é": 0, "Z": 1, "~": -1, "漢": 0}
    for turn_id, microseconds in moments.items():
        at = BEGAN + timedelta(microseconds=microseconds)
        await buffer.append(a_turn(session, 0, turn_id=turn_id, occurred_at=at))
    assert ids((await buffer.read(session)).turns) == ["~", "a", "b", "é", "漢", "Z"]


async def test_only_the_latest_turns_are_read_where_that_is_asked(buffer: Buffer) -> None:
    session = a_session()
    for number in range(5):
        await buffer.append(a_turn(session, number))
    assert ids((await buffer.read(session, last=2)).turns) == ["t3", "t4"]
    assert ids((await buffer.read(session, last=99)).turns) == ["t0", "t1", "t2", "t3", "t4"]
    assert ids((await buffer.read(session, last=0)).turns) == []


async def test_sessions_do_not_see_each_other(buffer: Buffer) -> None:
    one = a_session()
    others = [one.model_copy(update={field: "other"}) for field in ("app", "user_id", "session_id")]
    await buffer.append(a_turn(one, 1))
    for other in others:
        assert not (await buffer.read(other)).known


# --- idempotence -----------------------------------------------------------------------------------


async def test_the_same_turn_again_is_a_duplicate_and_is_given_back_whole(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1)
    await buffer.append(turn)
    again = await buffer.append(turn)
    assert (again.duplicate, again.closed) == (True, turn)
    assert (await buffer.read(turn.session)).turns == (turn,)


async def test_of_two_contents_for_one_position_the_first_stays(buffer: Buffer) -> None:
    session = a_session()
    first, second = a_turn(session, 1), a_turn(session, 1, [{"author": "user", "other": True}])
    await buffer.append(first)
    again = await buffer.append(second)
    assert (again.duplicate, again.closed) == (True, first)
    assert (await buffer.read(session)).turns == (first,)


async def test_an_append_that_overlaps_what_is_held_adds_only_what_is_new(buffer: Buffer) -> None:
    session = a_session()
    await buffer.append(a_turn(session, 1, [{"first": 0}]), close=False)
    appended = await buffer.append(a_turn(session, 1, [{"second": 0}, {"second": 1}]))
    expected = a_turn(session, 1, [{"first": 0}, {"second": 1}])
    assert (appended.duplicate, appended.closed) == (False, expected)
    assert (await buffer.read(session)).turns == (expected,)


async def test_a_turn_grows_event_by_event_until_it_is_closed(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1, [{"n": 0}, {"n": 1}, {"n": 2}])
    opened = await buffer.append(piece(turn, 0, 1), close=False)
    assert (opened.duplicate, opened.closed) == (False, None)
    grown = await buffer.append(piece(turn, 1, 2), first_event=1, close=False)
    assert (grown.duplicate, grown.closed) == (False, None)
    view = await buffer.read(turn.session)
    assert (view.turns, view.open_turns) == ((piece(turn, 0, 2),), frozenset({"t1"}))
    closed = await buffer.append(piece(turn, 2, 3), first_event=2)
    assert (closed.duplicate, closed.closed) == (False, turn)
    late = await buffer.append(piece(turn, 1, 2), first_event=1, close=False)
    assert (late.duplicate, late.closed) == (True, turn)
    view = await buffer.read(turn.session)
    assert (view.turns, view.open_turns) == ((turn,), frozenset())


async def test_closing_a_turn_whose_events_are_all_held_is_not_a_duplicate(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1)
    await buffer.append(turn, close=False)
    assert (await buffer.append(turn, close=False)).duplicate
    closed = await buffer.append(turn)
    assert (closed.duplicate, closed.closed) == (False, turn)


async def test_a_gap_is_refused_and_leaves_nothing_behind(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1, [{"n": 0}, {"n": 1}, {"n": 2}])
    with pytest.raises(InvalidEvent, match="holds 0 events; position 1 leaves a gap"):
        await buffer.append(piece(turn, 1, 2), first_event=1)
    assert not (await buffer.read(turn.session)).known


async def test_a_closed_turn_cannot_grow_and_says_so(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1, [{"n": 0}, {"n": 1}])
    await buffer.append(piece(turn, 0, 1))
    with pytest.raises(InvalidEvent, match="closed with 1 events and cannot grow"):
        await buffer.append(turn)
    assert (await buffer.read(turn.session)).turns == (piece(turn, 0, 1),)


class Step:
    """One append of an agent's run: events [first, stop) of a turn."""

    def __init__(self, turn: int, first: int, stop: int, close: bool) -> None:
        self.turn, self.first, self.stop, self.close = turn, first, stop, close

    def __repr__(self) -> str:
        return f"t{self.turn}[{self.first}:{self.stop}]{' close' if self.close else ''}"


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[int], list[Step]]:
    """Turns of some lengths, each sent event by event or whole or both, repeated and shuffled."""
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    steps: list[Step] = []
    for turn, length in enumerate(lengths):
        singles = [Step(turn, n, n + 1, n + 1 == length) for n in range(length)]
        whole = [Step(turn, 0, length, True)]
        steps += draw(st.sampled_from([singles, whole, singles + whole]))
    steps += draw(st.lists(st.sampled_from(steps), max_size=6))
    return lengths, draw(st.permutations(steps))


@PROPERTY
@given(deliveries())
async def test_any_order_and_repetition_of_appends_ends_in_the_same_view(
    buffer: Buffer, sent: tuple[list[int], list[Step]]
) -> None:
    lengths, steps = sent
    session = a_session()
    turns = [
        a_turn(session, n, [{"n": n, "i": i} for i in range(length)]) for n, length in enumerate(lengths)
    ]
    waiting = list(steps)
    while waiting:  # a step that leaves a gap is refused, and sent again later
        refused: list[Step] = []
        for step in waiting:
            try:
                await buffer.append(
                    piece(turns[step.turn], step.first, step.stop), first_event=step.first, close=step.close
                )
            except InvalidEvent:
                refused.append(step)
        assert len(refused) < len(waiting)
        waiting = refused
    view = await buffer.read(session)
    assert (view.turns, view.open_turns) == (tuple(turns), frozenset())


# --- trimming --------------------------------------------------------------------------------------


async def test_a_trim_lets_go_of_exactly_the_covered_turns_and_caches_the_summary(buffer: Buffer) -> None:
    session = a_session()
    for number in range(4):
        await buffer.append(a_turn(session, number))
    assert await buffer.trim(session, ["t0", "t2", "never-seen"], a_summary(session, 1))
    view = await buffer.read(session)
    assert (view.known, ids(view.turns), view.summary) == (True, ["t1", "t3"], a_summary(session, 1))


async def test_trimming_the_same_version_again_is_harmless(buffer: Buffer) -> None:
    session = a_session()
    for number in range(3):
        await buffer.append(a_turn(session, number))
    assert await buffer.trim(session, ["t0"], a_summary(session, 1))
    assert await buffer.trim(session, ["t0"], a_summary(session, 1))
    assert ids((await buffer.read(session)).turns) == ["t1", "t2"]


async def test_an_older_version_changes_nothing(buffer: Buffer) -> None:
    session = a_session()
    for number in range(3):
        await buffer.append(a_turn(session, number))
    assert await buffer.trim(session, ["t0"], a_summary(session, 10))
    assert not await buffer.trim(session, ["t1"], a_summary(session, 9))
    view = await buffer.read(session)
    assert (ids(view.turns), view.summary) == (["t1", "t2"], a_summary(session, 10))


async def test_a_trimmed_turn_is_never_taken_in_again(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1, [{"n": 0}, {"n": 1}])
    await buffer.append(turn)
    await buffer.trim(turn.session, ["t1"], a_summary(turn.session, 1))
    whole = await buffer.append(turn)
    assert (whole.duplicate, whole.closed) == (True, turn), "its turn.recorded can be published again"
    part = await buffer.append(piece(turn, 1, 2), first_event=1)
    assert (part.duplicate, part.closed) == (True, None)
    assert (await buffer.read(turn.session)).turns == ()


async def test_a_turn_that_still_grows_survives_a_trim(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1)
    await buffer.append(turn, close=False)
    await buffer.trim(turn.session, ["t1"], a_summary(turn.session, 1))
    assert (await buffer.read(turn.session)).turns == (turn,)
    assert (await buffer.append(turn)).closed == turn


async def test_a_summary_can_be_cached_before_any_turn(buffer: Buffer) -> None:
    session = a_session()
    assert await buffer.trim(session, [], a_summary(session, 0))
    view = await buffer.read(session)
    assert (view.known, view.summary) == (False, a_summary(session, 0))


async def test_a_summary_cached_for_turns_that_were_lost_goes_when_the_session_begins_again(
    buffer: Buffer,
) -> None:
    session = a_session()
    await buffer.trim(session, ["t1"], a_summary(session, 1))
    await buffer.append(a_turn(session, 2))
    view = await buffer.read(session)
    assert (ids(view.turns), view.summary) == (["t2"], None)


async def test_fifty_appends_among_fifty_trims_lose_no_uncovered_turn(buffer: Buffer) -> None:
    session = a_session()
    for number in range(50):
        await buffer.append(a_turn(session, number))
    appends = [buffer.append(a_turn(session, number)) for number in range(50, 100)]
    trims = [buffer.trim(session, [f"t{n}"], a_summary(session, n + 1)) for n in range(50)]
    done = await asyncio.gather(*appends, *trims)
    left = set(ids((await buffer.read(session)).turns))
    covered = {f"t{n}" for n, moved in enumerate(done[50:]) if moved}
    assert left == {f"t{n}" for n in range(100)} - covered
    assert covered, "at least the last version moves the cache"


async def test_fifty_writers_of_one_turn_leave_each_event_once(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1, [{"n": n} for n in range(8)])
    results = await asyncio.gather(*(buffer.append(turn) for _ in range(50)))
    assert sum(not result.duplicate for result in results) == 1
    assert all(result.closed == turn for result in results)
    assert (await buffer.read(turn.session)).turns == (turn,)


# --- fidelity --------------------------------------------------------------------------------------

WILD_EVENT: dict[str, Any] = {
    "id": "e-1",
    "invocation_id": "inv-1",
    "author": "agent",
    "timestamp": 1772355600.123456,
    "long_running_tool_ids": ["call-1"],
    "content": {
        "role": "model",
        "parts": [
            {"text": "thinking…", "thought": True, "thought_signature": "AAEC/+8="},
            {"function_call": {"id": "call-1", "name": "restock", "args": {"sku": 2**70, "ratio": 1e-300}}},
            {
                "function_response": {
                    "id": "call-1",
                    "name": "restock",
                    "response": {"ok": None, "rows": [[]]},
                }
            },
            {"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}},
            {"text": "NUL \x00, half a pair \ud800 and \udfff, 漢字, 🛒, \u2028"},
        ],
    },
    "actions": {"state_delta": {"app:theme": "dark", "": [0, -0.0, 1.0, False]}, "transfer_to_agent": None},
    "an_unknown_field": {"of a later release": [{"x": "\x7f"}]},
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec=None), max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)
wild_events = st.dictionaries(st.text(st.characters(codec=None), max_size=8), json_values, max_size=5).filter(
    lambda event: not event.keys() & {"content", "author"}
)


async def test_a_wild_event_survives_exactly(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1, [WILD_EVENT])
    await buffer.append(turn)
    read = (await buffer.read(turn.session)).turns[0]
    assert read.events[0].root == WILD_EVENT
    assert read.encode() == turn.encode(), "also 1.0 stays a float, and -0.0 negative"


@PROPERTY
@given(st.lists(wild_events, min_size=1, max_size=3))
async def test_any_json_survives_exactly(buffer: Buffer, events: list[dict[str, Any]]) -> None:
    turn = a_turn(a_session(), 1, events)
    await buffer.append(piece(turn, 0, 1), close=len(events) == 1)
    for position in range(1, len(events)):
        await buffer.append(
            piece(turn, position, position + 1), first_event=position, close=position + 1 == len(events)
        )
    assert (await buffer.read(turn.session)).turns[0].encode() == turn.encode()


async def test_what_a_caller_changes_later_does_not_reach_the_buffer(buffer: Buffer) -> None:
    turn = a_turn(a_session(), 1, [{"state": {"n": 1}}])
    await buffer.append(turn)
    turn.events[0].root["state"]["n"] = 2
    assert (await buffer.read(turn.session)).turns[0].events[0].root == {"state": {"n": 1}}


async def test_a_buffer_answers_a_ping(buffer: Buffer) -> None:
    await buffer.ping()


# --- what became of a turn -------------------------------------------------------------------------


async def test_a_turn_nobody_has_heard_of_leaves_no_trace(buffer: Buffer) -> None:
    session = a_session()
    assert await buffer.trace(session, "t1") is None
    assert await buffer.mark_published(session, "t1") is False
    assert await buffer.trace(session, "t1") is None
    assert not (await buffer.read(session)).known


async def test_a_turn_is_traced_from_its_first_event_until_it_is_let_go_of(buffer: Buffer) -> None:
    session = a_session()
    turn = a_turn(session, 1)
    await buffer.append(turn, close=False)
    assert await buffer.trace(session, "t1") == BufferTrace("open")
    await buffer.append(turn)
    assert await buffer.trace(session, "t1") == BufferTrace("closed")
    await buffer.trim(session, ["t1"], a_summary(session, 1))
    assert await buffer.trace(session, "t1") == BufferTrace("trimmed")


async def test_the_first_publishing_is_remembered_with_the_turn_and_no_longer(buffer: Buffer) -> None:
    session = a_session()
    await buffer.append(a_turn(session, 1))
    assert await buffer.mark_published(session, "t1") is True
    first = await buffer.trace(session, "t1")
    assert first is not None
    assert first.published_at is not None
    assert abs(datetime.now(UTC) - first.published_at) < timedelta(minutes=1)
    assert await buffer.mark_published(session, "t1") is True
    await buffer.append(a_turn(session, 1))
    assert await buffer.trace(session, "t1") == first
    assert ids((await buffer.read(session)).turns) == ["t1"]
    await buffer.trim(session, ["t1"], a_summary(session, 1))
    assert await buffer.mark_published(session, "t1") is False
    assert await buffer.trace(session, "t1") == BufferTrace("trimmed")


# --- letting go for good ---------------------------------------------------------------------------


async def test_what_is_dropped_is_gone_whatever_its_state_and_may_come_back(buffer: Buffer) -> None:
    session = a_session()
    closed, growing, kept = a_turn(session, 1), a_turn(session, 2), a_turn(session, 3)
    await buffer.append(closed)
    await buffer.append(growing, close=False)
    await buffer.append(kept)
    assert await buffer.drop(session, ["t1", "t2", "t9"]) == 2
    assert await buffer.drop(session, ["t1", "t2", "t9"]) == 0
    assert ids((await buffer.read(session)).turns) == ["t3"]
    assert not (await buffer.append(closed)).duplicate
    assert ids((await buffer.read(session)).turns) == ["t1", "t3"]


async def test_dropping_the_summary_lets_trimmed_turns_in_again(buffer: Buffer) -> None:
    session = a_session()
    turns = [a_turn(session, number) for number in (1, 2)]
    for turn in turns:
        await buffer.append(turn)
    await buffer.trim(session, ["t1"], a_summary(session, 1))
    await buffer.drop(session, [], summary=True)
    view = await buffer.read(session)
    assert (view.summary, ids(view.turns)) == (None, ["t2"])
    assert not (await buffer.append(turns[0])).duplicate
    assert ids((await buffer.read(session)).turns) == ["t1", "t2"]


async def test_a_session_of_which_nothing_is_left_is_unknown(buffer: Buffer) -> None:
    session = a_session()
    await buffer.append(a_turn(session, 1))
    await buffer.drop(session, ["t1"], summary=True)
    assert not (await buffer.read(session)).known
    assert await buffer.drop(session, ["t1"], summary=True) == 0


async def test_a_forgotten_turn_is_refused_and_leaves_nothing_behind(buffer: Buffer) -> None:
    session = a_session().model_copy(update={"user_id": f"user-{uuid.uuid4()}"})
    late, new = a_turn(session, 1), a_turn(session, 3)
    stone = Tombstone(scope="session", owner=session.session_id, forgotten_at=BEGAN + timedelta(minutes=2))
    await buffer.entomb(session.app, session.user_id, [stone])
    for close in (True, False):
        with pytest.raises(Forgotten):
            await buffer.append(late, close=close)
    assert not (await buffer.read(session)).known
    assert not (await buffer.append(new)).duplicate
    other = late.model_copy(update={"session_id": f"s-{uuid.uuid4()}"})
    assert not (await buffer.append(other)).duplicate
