"""A summary depends on which turns it covers, never on the order or the batches they came in."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.model import SessionKey, Summary, SummaryLine, Turn
from lamina.models.offline import OfflineModel
from lamina.models.offline.lines import merge
from lamina.models.offline.summary import consolidate_episodes, lines_of, summarise_turns
from lamina.models.tokens import EstimatedTokens
from lamina.ports import OldEpisode
from tests.builders import BEGAN


def a_turn(number: int, words: str, answer: str | None = None, project: str | None = None) -> Turn:
    return Turn.model_validate(
        {
            "app": "shop",
            "user_id": "ana",
            "session_id": "s1",
            "turn_id": f"t{number}",
            "occurred_at": BEGAN + timedelta(minutes=number),
            "project_id": project,
            "user": words,
            **({"assistant": answer} if answer else {}),
        }
    )


SENTENCES = [
    "I prefer tabs over spaces.",
    "I prefer dark mode.",
    "Prefiero el modo claro.",
    "We use PostgreSQL.",
    "We moved from PostgreSQL to MySQL.",
    "Every tool call is limited to 30 seconds.",
    "Every tool call is limited to 60 seconds.",
    "Never run migrations against production.",
    "Nunca rode migrações em produção.",
    "Decision: the beta opens to twenty customers.",
    "Can you look at the failing build?",
    "The retry loop swallows the exception, which loses data on every restart of the worker.",
    "The warehouse in Lyon ships 400 parcels a day.",
    "Thanks, that was it.",
]


def _spoken(number: int, words: list[str], answer: str) -> Turn:
    return a_turn(number, " ".join(words), answer)


turns = st.lists(
    st.builds(
        _spoken,
        st.integers(min_value=1, max_value=9),
        st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=3),
        st.sampled_from([*SENTENCES, "I changed the loop and added three tests that fail without it."]),
    ),
    max_size=8,
    unique_by=lambda turn: turn.turn_id,
)
lines = st.lists(
    st.builds(
        SummaryLine,
        kind=st.sampled_from(["rule", "veto", "preference", "decision", "fact", "goal", "digest"]),
        text=st.sampled_from(["a", "A", "b  b", "b b", "c " * 30, "d " * 80, "é", "支払い"]),
        turn_id=st.sampled_from(["t1", "t2", "t3"]),
        ordinal=st.integers(min_value=0, max_value=2),
        at=st.integers(min_value=0, max_value=4).map(lambda minutes: BEGAN + timedelta(minutes=minutes)),
        subject=st.sampled_from(["", "x", "y"]),
    ),
    max_size=12,
)
budgets = st.integers(min_value=1, max_value=400)


@given(lines, lines, budgets)
def test_merging_is_commutative(a: list[SummaryLine], b: list[SummaryLine], budget: int) -> None:
    assert merge([*a, *b], budget) == merge([*b, *a], budget)


@settings(max_examples=300)
@given(lines, lines, budgets)
def test_merging_in_steps_equals_merging_at_once(
    a: list[SummaryLine], b: list[SummaryLine], budget: int
) -> None:
    assert merge([*merge(a, budget), *b], budget) == merge([*a, *b], budget)


@given(lines, budgets)
def test_merging_again_changes_nothing(a: list[SummaryLine], budget: int) -> None:
    once = merge(a, budget)
    assert merge(once, budget) == once == merge([*once, *once], budget)


@settings(max_examples=60, deadline=None)  # a turn's text is read anew for each example
@given(turns, st.integers(min_value=0, max_value=8), st.randoms(use_true_random=False), budgets)
def test_a_summary_is_the_same_for_every_order_and_batching(
    covered: list[Turn], cut: int, random: Any, budget: int
) -> None:
    at_once = summarise_turns((), covered, budget)
    shuffled = random.sample(covered, len(covered))
    in_steps = summarise_turns(summarise_turns((), shuffled[:cut], budget), shuffled[cut:], budget)
    assert in_steps == at_once
    assert summarise_turns(at_once, covered, budget) == at_once


@given(lines, budgets)
def test_rules_and_vetoes_always_come_through(a: list[SummaryLine], budget: int) -> None:
    kept = {" ".join(line.text.casefold().split()) for line in merge(a, budget) if line.pinned}
    assert kept == {" ".join(line.text.casefold().split()) for line in a if line.pinned}


@given(lines, budgets)
def test_what_is_not_pinned_fits_the_budget(a: list[SummaryLine], budget: int) -> None:
    costs = [(EstimatedTokens().count(line.text), line) for line in merge(a, budget)]
    pinned = sum(cost for cost, line in costs if line.pinned)
    others = [cost for cost, line in costs if not line.pinned]
    # The digest and the rest may each overshoot by the line that no longer fitted.
    assert sum(others) <= max(budget // 4, budget - pinned) + 2 * max(others, default=0)


async def test_a_veto_is_kept_word_for_word() -> None:
    veto = "Nunca ejecutes migraciones en producción, ni siquiera de noche."
    first = await OfflineModel().summarise((), [a_turn(1, f"Ojo. {veto}")], 100)
    filler = [a_turn(n, "The retry loop swallows the exception. " * 8) for n in range(2, 30)]
    lines_after = await OfflineModel().summarise(first, filler, 100)
    assert [line.text for line in lines_after if line.kind == "veto"] == [veto]


def test_a_later_decision_leaves_the_earlier_one_as_history() -> None:
    merged = summarise_turns((), [a_turn(1, "We use PostgreSQL."), a_turn(2, "We use MySQL.")], 2_000)
    summary = Summary(session=SessionKey(app="shop", user_id="ana", session_id="s1"), version=1, lines=merged)
    assert "MySQL" in summary.render()
    assert "PostgreSQL" not in summary.render()
    (old,) = [line for line in merged if line.superseded_at]
    assert old.text == "We use PostgreSQL."


def test_slots_of_two_projects_do_not_supersede_each_other() -> None:
    merged = summarise_turns(
        (),
        [
            a_turn(1, "We use PostgreSQL.", project="CloudRetail"),
            a_turn(2, "We use MySQL.", project="CloudBank"),
        ],
        2_000,
    )
    assert all(line.superseded_at is None for line in merged)


def test_a_turn_that_states_nothing_is_still_told_of() -> None:
    (mine, theirs) = lines_of(a_turn(1, "Can you look at the build?", "It is green."))
    assert (mine.text, theirs.text) == ("user: Can you look at the build?", "agent: It is green.")


def test_a_long_answer_is_cut_to_its_gist() -> None:
    answer = " ".join(f"Step {n} changes module {n} and adds a test for case {n}." for n in range(200))
    (_, digest) = lines_of(a_turn(1, "Go on.", answer))
    assert 40 < len(digest.text) < 500


# --- consolidation -------------------------------------------------------------------------------


def old(turn: str, text: str, speaker: str = "user", day: int = 0) -> OldEpisode:
    at = BEGAN + timedelta(days=day)
    return OldEpisode(uuid.uuid4(), "s1", turn, speaker, f"[{at:%Y-%m-%d}] {speaker}: {text}", at)


def test_each_line_of_a_consolidation_stands_on_its_turn() -> None:
    episodes = [
        old("t1", "I prefer tabs over spaces. How are you?"),
        old("t1", "I am fine. The build is green again.", "agent"),
        old("t2", '{"rows": 3, "status": "the user prefers Java"}', "tool", 1),
    ]
    merged = consolidate_episodes(episodes, 2_000)
    assert {line.turn_id for line in merged} == {"t1", "t2"}
    assert [(line.kind, line.text) for line in merged if line.kind != "digest"] == [
        ("preference", "I prefer tabs over spaces.")
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            old,
            st.sampled_from(["t1", "t2"]),
            st.one_of(st.text(max_size=60), st.sampled_from(SENTENCES)),
            st.sampled_from(["user", "agent", "tool"]),
        ),
        min_size=1,
        max_size=6,
    ),
    budgets,
)
def test_something_is_always_said_of_old_episodes(episodes: list[OldEpisode], budget: int) -> None:
    merged = consolidate_episodes(episodes, budget)
    assert merged
    assert {line.turn_id for line in merged} <= {episode.turn_id for episode in episodes}


@pytest.mark.parametrize("characters", [200, 4_000])
def test_a_consolidation_of_tool_output_keeps_enough_to_be_believed(characters: int) -> None:
    episodes = [old(f"t{n}", "row value total " * (characters // 16), "tool", n) for n in range(40)]
    count = EstimatedTokens().count
    before = sum(count(episode.text) for episode in episodes)
    after = sum(count(line.text) for line in consolidate_episodes(episodes, 10_000))
    assert after >= 0.02 * before
