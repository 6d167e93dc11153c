"""Time words of a question, in three languages."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.recall.timewords import time_hint

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "question", ["What did I say yesterday?", "¿Qué dije ayer?", "O que eu disse ontem?"]
)
def test_yesterday_is_one_day(question: str) -> None:
    assert time_hint(question, NOW).ranges == ((date(2026, 11, 29), date(2026, 11, 29)),)


@pytest.mark.parametrize(
    "question", ["what broke two weeks ago", "qué falló hace dos semanas", "o que falhou há duas semanas"]
)
def test_two_weeks_ago_is_the_week_around_that_day(question: str) -> None:
    assert time_hint(question, NOW).ranges == ((date(2026, 11, 13), date(2026, 11, 19)),)


@pytest.mark.parametrize("question", ["last month", "el mes pasado", "no mês passado"])
def test_last_month_is_the_calendar_month(question: str) -> None:
    assert time_hint(question, NOW).ranges == ((date(2026, 10, 1), date(2026, 10, 31)),)


@pytest.mark.parametrize(
    "question",
    ["in my previous session", "our last conversation", "en la sesión anterior", "na última sessão"],
)
def test_the_last_session_is_noticed(question: str) -> None:
    assert time_hint(question, NOW).previous_session


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("on 7 May 2023", (2023, 5, 7)),
        ("on May 7th, 2023", (2023, 5, 7)),
        ("el 7 de mayo de 2023", (2023, 5, 7)),
        ("em maio de 2023", (2023, 5, None)),
        ("in March", (None, 3, None)),
        ("since 2023", (2023, None, None)),
        ("2026-01-05", (2026, 1, 5)),
    ],
)
def test_a_named_date_is_read(question: str, named: tuple[int | None, int | None, int | None]) -> None:
    assert time_hint(question, NOW).named == (named,)


def test_may_is_no_month_where_it_is_a_verb() -> None:
    assert time_hint("may I march on?", NOW).named == ()


def test_a_hint_covers_moments_of_the_days_it_names() -> None:
    hint = time_hint("what did we decide yesterday, or in May 2023?", NOW)
    assert hint.covers(datetime(2026, 11, 29, 23, 59, tzinfo=UTC))
    assert hint.covers(datetime(2023, 5, 31, tzinfo=UTC))
    assert not hint.covers(NOW)


@given(st.text() | st.from_regex(r"[0-9]{1,4} (years|dias|semanas) (ago|atras)|hace [0-9]{1,3} años"))
def test_any_question_has_a_hint(question: str) -> None:
    time_hint(question, NOW).covers(NOW)
