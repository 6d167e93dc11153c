"""One ranking out of two scores and a memory's traits."""

from datetime import UTC, datetime, timedelta

import pytest

from lamina.event import Speaker
from lamina.recall.fusion import Candidate, Scale, rank
from lamina.recall.timewords import TimeHint

NOW = datetime(2026, 11, 30, tzinfo=UTC)
WORDS, MEANING = Scale(0.0, 1.0), Scale(0.0, 1.0)


def candidate(
    words: float = 0.0,
    meaning: float | None = 0.0,
    *,
    session: str = "s",
    speaker: Speaker = Speaker.AGENT,
    days_ago: float = 0,
    standing: bool = False,
) -> Candidate:
    return Candidate(words, meaning, session, speaker, NOW - timedelta(days=days_ago), standing)


def order(*candidates: Candidate, hint: TimeHint | None = None, fusion: str = "min_max") -> list[int]:
    ranked = rank(
        candidates,
        words=WORDS,
        meaning=MEANING,
        now=NOW,
        hint=hint or TimeHint(),
        previous_session_id="before",
        fusion=fusion,
    )
    return [index for index, _ in ranked]


@pytest.mark.parametrize("fusion", ["min_max", "rrf"])
def test_good_in_both_lists_beats_best_in_one(fusion: str) -> None:
    both, words, meaning = candidate(0.8, 0.8, session="a"), candidate(1, None, session="b"), candidate(0, 1)
    assert order(words, meaning, both, fusion=fusion)[0] == 2


def test_a_memory_without_a_vector_is_ranked_by_its_words() -> None:
    assert order(candidate(0.2, 0.4, session="a"), candidate(1.0, None, session="b"))[0] == 1


def test_between_equals_the_newer_comes_first() -> None:
    assert order(candidate(1, days_ago=60, session="a"), candidate(1, days_ago=1, session="b")) == [1, 0]


def test_between_equals_what_the_user_said_comes_first() -> None:
    assert order(candidate(1, session="a"), candidate(1, session="b", speaker=Speaker.USER)) == [1, 0]


def test_a_named_date_and_the_last_session_raise_what_they_name() -> None:
    old = candidate(0.5, days_ago=40, session="before")
    new = candidate(0.5, session="now")
    assert order(old, new) == [1, 0]
    assert order(old, new, hint=TimeHint(previous_session=True)) == [0, 1]
    day = (NOW - timedelta(days=40)).date()
    assert order(old, new, hint=TimeHint(ranges=((day, day),))) == [0, 1]


def test_a_preference_stands_before_a_fact_of_the_same_score() -> None:
    assert order(candidate(session="a"), candidate(session="b", standing=True)) == [1, 0]


def test_where_nothing_tells_scores_apart_they_count_as_nothing() -> None:
    assert Scale(0.7, 0.7).normal(0.7) == 0.0
