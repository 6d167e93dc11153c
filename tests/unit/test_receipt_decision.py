"""A receipt says of each stage what the turn's traces bear out, and no more."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.api import Receipt, StageView
from lamina.ports import BufferTrace, Evidence, IndexedLetter
from lamina_services.context.receipt import Traces, receipt_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT = NOW - timedelta(minutes=10)
MARKS_KEPT = timedelta(days=30)
LATER = ("summarised", "extracted", "embedded", "searchable by words", "searchable by vector")
EVERYTHING = Evidence(
    recorded_at=AT,
    summary_version=3,
    summarised_at=AT + timedelta(seconds=9),
    processed={"entity-extractor": AT, "episodic-embedder": AT + timedelta(seconds=2)},
    statements=2,
    chunks=4,
    vectors=4,
    indexed_at=AT + timedelta(seconds=1),
)


def a_letter(subscription: str, **fields: object) -> IndexedLetter:
    letter = IndexedLetter(
        app="shop",
        user_id="ana",
        session_id="s1",
        turn_id="t1",
        subscription=subscription,
        error="ModelRefused",
        reason="declined",
        failures=1,
        service=subscription,
        parked_at=AT,
    )
    return replace(letter, **fields)  # pyright: ignore[reportArgumentType] - fields of the letter, by name


def read(traces: Traces) -> Receipt:
    receipt = receipt_of("s1", "t1", traces, now=NOW, marks_kept=MARKS_KEPT)
    assert receipt is not None
    return receipt


def stage(traces: Traces, name: str) -> StageView:
    return next(each for each in read(traces).stages if each.stage == name)


def states(traces: Traces) -> dict[str, str]:
    return {each.stage: each.state for each in read(traces).stages}


@pytest.mark.parametrize(
    "traces",
    [
        Traces(memory=Evidence()),
        Traces(memory=Evidence(), buffer_down=True),
        Traces(memory_down=True),
    ],
)
def test_a_turn_that_left_no_trace_has_no_receipt(traces: Traces) -> None:
    assert receipt_of("s1", "t1", traces, now=NOW, marks_kept=MARKS_KEPT) is None


def test_a_turn_that_is_only_in_the_buffer_waits_for_everything_else() -> None:
    traces = Traces(BufferTrace("closed"), Evidence())
    assert states(traces) == {"accepted": "done", **dict.fromkeys(("published", *LATER), "waiting")}


def test_a_mark_in_the_buffer_says_that_and_when_it_was_published() -> None:
    traces = Traces(BufferTrace("closed", published_at=AT), Evidence())
    assert (stage(traces, "published").state, stage(traces, "published").at) == ("done", AT)
    assert stage(traces, "accepted").at == AT


def test_a_turn_that_still_grows_is_not_yet_accepted() -> None:
    assert states(Traces(BufferTrace("open"), Evidence()))["accepted"] == "waiting"


def test_each_stage_that_is_done_says_when_and_what_came_of_it() -> None:
    traces = Traces(BufferTrace("trimmed"), EVERYTHING)
    assert set(states(traces).values()) == {"done"}
    assert stage(traces, "summarised").version == 3
    assert stage(traces, "extracted").count == 2
    assert stage(traces, "embedded").count == 4
    assert stage(traces, "searchable by words").at == AT + timedelta(seconds=1)
    assert stage(traces, "searchable by vector").at == AT + timedelta(seconds=2)


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(recorded_at=AT),
        Evidence(summary_version=1),
        Evidence(processed={"summarizer": AT}),
        Evidence(statements=1),
        Evidence(chunks=1),
        Evidence(letters=(a_letter("episodic-embedder"),)),
    ],
)
def test_any_subscriber_that_has_seen_it_proves_that_it_was_published(evidence: Evidence) -> None:
    found = states(Traces(memory=evidence, buffer_down=True))
    assert (found["accepted"], found["published"]) == ("done", "done")


def test_a_turn_can_be_found_by_words_before_it_has_all_its_vectors() -> None:
    found = states(Traces(memory=replace(EVERYTHING, vectors=3, processed={})))
    assert (found["searchable by words"], found["searchable by vector"]) == ("done", "waiting")
    assert found["embedded"] == "waiting"


def test_a_turn_without_anything_to_search_for_is_done_and_says_so() -> None:
    traces = Traces(memory=Evidence(recorded_at=AT, processed={"episodic-embedder": AT}))
    assert stage(traces, "searchable by words").state == "done"
    assert stage(traces, "searchable by words").note == "nothing in it to search for"


def test_a_turn_that_the_summary_goes_without_is_set_aside_and_stays_parked() -> None:
    evidence = replace(EVERYTHING, set_aside=True, letters=(a_letter("summarizer"),))
    assert states(Traces(memory=evidence))["summarised"] == "set aside"
    assert [each.subscription for each in read(Traces(memory=evidence)).parked] == ["summarizer"]


def test_a_turn_that_was_refused_at_the_door_is_parked_there() -> None:
    evidence = Evidence(letters=(a_letter("turn-ingest", error="InvalidEvent", reason="events: missing"),))
    found = states(Traces(memory=evidence))
    assert (found["accepted"], found["published"], found["extracted"]) == ("parked", "parked", "waiting")
    [parked] = read(Traces(memory=evidence)).parked
    assert (parked.error, parked.reason) == ("InvalidEvent", "events: missing")


@pytest.mark.parametrize(
    ("subscription", "name"),
    [("summarizer", "summarised"), ("entity-extractor", "extracted"), ("episodic-embedder", "embedded")],
)
def test_a_stage_is_parked_unless_it_has_been_done_meanwhile(subscription: str, name: str) -> None:
    letter = a_letter(subscription)
    parked = Traces(memory=Evidence(recorded_at=AT, letters=(letter,)))
    assert (stage(parked, name).state, stage(parked, name).at) == ("parked", AT)
    assert [each.subscription for each in read(parked).parked] == [subscription]
    replayed = Traces(memory=replace(EVERYTHING, letters=(letter,)))
    assert stage(replayed, name).state == "done"
    assert read(replayed).parked == ()


def test_where_the_database_is_down_its_stages_are_unknown() -> None:
    traces = Traces(BufferTrace("closed", AT), memory_down=True)
    assert states(traces) == {"accepted": "done", "published": "done", **dict.fromkeys(LATER, "unknown")}
    assert read(traces).degraded == ("memory",)


def test_a_turn_that_the_buffer_let_go_of_is_summarised_whatever_the_database_does() -> None:
    assert states(Traces(BufferTrace("trimmed"), memory_down=True))["summarised"] == "done"


def test_where_the_buffer_is_down_nobody_says_that_a_turn_waits_to_be_published() -> None:
    memory = Evidence(letters=(a_letter("compactor"),))
    assert read(Traces(memory=memory, buffer_down=True)).degraded == ("buffer",)


def test_where_marks_have_expired_nobody_can_tell_that_a_stage_still_waits() -> None:
    old = Evidence(recorded_at=NOW - timedelta(days=31), summary_version=1)
    found = states(Traces(memory=old))
    assert (found["extracted"], found["embedded"], found["summarised"]) == ("unknown", "unknown", "done")
    assert states(Traces(memory=replace(old, recorded_at=AT)))["extracted"] == "waiting"


@given(
    buffer=st.none() | st.builds(BufferTrace, st.sampled_from(["open", "closed", "trimmed"]), st.none()),
    memory=st.builds(
        Evidence,
        recorded_at=st.none() | st.just(AT),
        summary_version=st.none() | st.just(1),
        set_aside=st.booleans(),
        processed=st.dictionaries(st.sampled_from(["summarizer", "entity-extractor"]), st.just(AT)),
        statements=st.integers(0, 2),
        chunks=st.integers(0, 2),
        letters=st.lists(
            st.sampled_from(["turn-ingest", "summarizer", "entity-extractor", "episodic-embedder"]).map(
                a_letter
            ),
            unique_by=lambda letter: letter.subscription,
        ).map(tuple),
    ),
    down=st.sampled_from([(False, False), (True, False), (False, True)]),
)
def test_whatever_is_known_no_stage_is_done_and_parked_at_once(
    buffer: BufferTrace | None, memory: Evidence, down: tuple[bool, bool]
) -> None:
    buffer_down, memory_down = down
    traces = Traces(
        None if buffer_down else buffer,
        None if memory_down else memory,
        buffer_down=buffer_down,
        memory_down=memory_down,
    )
    receipt = receipt_of("s1", "t1", traces, now=NOW, marks_kept=MARKS_KEPT)
    if receipt is None:
        assert traces.buffer is None
        return
    by_stage = {each.stage: each.state for each in receipt.stages}
    assert len(by_stage) == 7
    parked = {each.subscription for each in receipt.parked}
    assert ("entity-extractor" in parked) == (by_stage["extracted"] == "parked")
    assert ("episodic-embedder" in parked) == (by_stage["embedded"] == "parked")
    if "parked" in by_stage.values():
        assert parked
    if not memory_down and not buffer_down:
        assert "unknown" not in by_stage.values()
    Receipt.model_validate_json(receipt.model_dump_json())
