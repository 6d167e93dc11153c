"""What the counters of a stage say of it: a stage is dead when work waits and none gets done."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.postgres.vitals import LetterCount, StageLag
from lamina.topology import load_topology
from lamina_services.cli import vitals
from lamina_services.cli.vitals import Light, Part, Queue

TOPOLOGY = load_topology()
EXTRACTOR = TOPOLOGY.subscription("entity-extractor")
COMPACTOR = TOPOLOGY.subscription("compactor")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
T = NOW.timestamp()
DAY = 86_400.0
WELL = Queue(waiting=0, in_flight=0, done=40, refused=0, last_done_at=T - 5, counted_since=T - DAY)


def see(queue: Queue | None) -> Part:
    return vitals.stage(EXTRACTOR, queue, T, 60)


def test_a_stage_that_nobody_counts_is_unknown_and_not_well() -> None:
    assert see(None).light is Light.UNKNOWN


def test_a_stage_without_work_is_well_however_long_it_has_done_nothing() -> None:
    assert see(replace(WELL, last_done_at=T - 5 * DAY)).light is Light.GREEN
    assert see(replace(WELL, last_done_at=None)).light is Light.GREEN


def test_fresh_work_after_a_quiet_night_is_no_alarm() -> None:
    assert see(replace(WELL, waiting=1, oldest_at=T - 2, last_done_at=T - DAY / 2)).light is Light.GREEN


def test_a_worker_that_hangs_on_every_push_is_dead() -> None:
    part = see(replace(WELL, waiting=3, in_flight=3, oldest_at=T - 70, last_done_at=T - 80))
    assert part.light is Light.RED
    assert "entity-extractor" in part.name
    assert part.detail == (
        "3 waiting, the oldest for 70 s, 40 done, nothing done for 70 s, 3 pushes without an answer"
    )


def test_a_worker_that_refuses_every_push_is_dead() -> None:
    part = see(replace(WELL, waiting=2, refused=7, oldest_at=T - 300, last_done_at=None))
    assert part.light is Light.RED
    assert "refused 7 times" in part.detail


def test_a_few_refusals_are_worth_a_look() -> None:
    part = see(replace(WELL, waiting=1, refused=2, oldest_at=T - 4))
    assert (part.light, "2 times in a row" in part.detail) == (Light.YELLOW, True)


def test_a_stage_that_lags_but_works_is_worth_a_look_and_not_dead() -> None:
    assert see(replace(WELL, waiting=900, oldest_at=T - 3600, last_done_at=T - 1)).light is Light.YELLOW


def test_an_emulator_that_has_just_started_blames_nobody_for_an_old_backlog() -> None:
    queue = replace(WELL, waiting=9, oldest_at=T - DAY, last_done_at=None, counted_since=T - 3)
    assert see(queue).light is Light.YELLOW
    assert see(replace(queue, counted_since=T - 61)).light is Light.RED


def test_a_stage_whose_messages_may_take_long_is_given_longer() -> None:
    queue = replace(WELL, waiting=1, in_flight=1, oldest_at=T - 200, last_done_at=None)
    assert see(queue).light is Light.RED
    assert vitals.stage(COMPACTOR, queue, T, 60).light is Light.YELLOW
    assert vitals.stage(COMPACTOR, replace(queue, oldest_at=T - 301), T, 60).light is Light.RED


@given(
    waiting=st.integers(0, 5),
    oldest=st.floats(0, 1000),
    done=st.none() | st.floats(0, 1000),
    since=st.floats(0, 1000),
    refused=st.integers(0, 3),
)
def test_a_stage_is_red_only_while_work_waits_and_only_after_its_patience(
    waiting: int, oldest: float, done: float | None, since: float, refused: int
) -> None:
    queue = Queue(
        waiting=waiting,
        in_flight=0,
        done=0,
        refused=refused,
        oldest_at=T - oldest if waiting else None,
        last_done_at=None if done is None else T - done,
        counted_since=T - since,
    )
    idle = min(x for x in (done, since) if x is not None)
    red = see(queue).light is Light.RED
    assert red == (waiting > 0 and min(oldest, idle) >= 60) or abs(min(oldest, idle) - 60) < 1e-3


def test_the_recorders_subscriptions_are_seen_as_one() -> None:
    one = replace(WELL, waiting=1, oldest_at=T - 70, last_done_at=None, refused=1)
    both = vitals.together([one, WELL])
    assert (both.waiting, both.oldest_at, both.last_done_at, both.refused) == (1, T - 70, T - 5, 1)
    assert vitals.recorder(TOPOLOGY.recordings[0], both, T, 60).light is Light.YELLOW
    assert vitals.recorder(TOPOLOGY.recordings[0], None, T, 60).light is Light.UNKNOWN


# --- the log ---------------------------------------------------------------------------------------


LAG = StageLag(
    "entity-extractor", 3, NOW - timedelta(minutes=5), "shop", "ana", "s1", "t1", NOW - timedelta(minutes=9)
)


def test_the_log_tells_which_turn_has_waited_longest() -> None:
    part = vitals.unprocessed(LAG, replace(WELL, waiting=3, oldest_at=T - 300), NOW, 60)
    assert part is not None
    assert "turn t1 of shop/ana/s1" in part.detail


def test_a_turn_that_has_only_just_come_is_not_worth_a_line() -> None:
    assert vitals.unprocessed(replace(LAG, oldest=NOW - timedelta(seconds=5)), WELL, NOW, 60) is None
    assert vitals.unprocessed(replace(LAG, waiting=0, oldest=None), WELL, NOW, 60) is None


def test_a_turn_that_is_in_no_queue_was_lost_which_makes_no_stage_dead() -> None:
    part = vitals.unprocessed(LAG, WELL, NOW, 60)
    assert part is not None
    assert (part.light, "none of them is in its queue" in part.detail) == (Light.YELLOW, True)


@pytest.mark.parametrize(
    ("last_done", "light"),
    [(None, Light.RED), (timedelta(minutes=9), Light.RED), (timedelta(seconds=2), Light.YELLOW)],
)
def test_where_nobody_counts_messages_the_log_tells_that_a_stage_is_dead(
    last_done: timedelta | None, light: Light
) -> None:
    lag = replace(LAG, last_done=None if last_done is None else NOW - last_done)
    part = vitals.unprocessed(lag, None, NOW, 60)
    assert part is not None
    assert part.light is light


# --- dead letters ----------------------------------------------------------------------------------


COUNTS = [
    LetterCount("entity-extractor", "ModelRefused", 2, NOW - timedelta(hours=3)),
    LetterCount("summarizer", "InvalidEvent", 1, NOW),
]


def test_dead_letters_are_told_by_error_and_where_the_queue_says_otherwise() -> None:
    part = vitals.letters(EXTRACTOR, 3, COUNTS, NOW)
    assert part is not None
    assert (part.light, part.detail) == (Light.YELLOW, "2 ModelRefused (since 3 h ago), 3 in the queue")
    assert part.facts["by_error"] == {"ModelRefused": 2}
    same = vitals.letters(EXTRACTOR, 2, COUNTS, NOW)
    assert same is not None
    assert "queue" not in same.detail


def test_no_dead_letters_are_no_line() -> None:
    assert vitals.letters(COMPACTOR, 0, COUNTS, NOW) is None
    assert vitals.letters(COMPACTOR, None, COUNTS, NOW) is None
    unnamed = vitals.letters(COMPACTOR, 1, COUNTS, NOW)
    assert unnamed is not None
    assert unnamed.detail == "1 in the queue"
