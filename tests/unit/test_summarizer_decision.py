"""Which turns a summary takes over, and what a model may not leave out."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import ModelAnswerInvalid
from lamina.model import SummaryLine, Turn
from lamina.ports import BufferView
from lamina.settings import Settings
from lamina_services.summarizer.decision import Plan, checked, plan, readable

BEGAN = datetime(2026, 3, 1, 9, tzinfo=UTC)


def a_turn(number: int) -> Turn:
    return Turn.model_validate(
        {
            "app": "shop",
            "user_id": "ana",
            "session_id": "s1",
            "turn_id": f"t{number}",
            "occurred_at": BEGAN + timedelta(minutes=number),
            "user": f"message {number}",
        }
    )


def decide(
    sizes: Sequence[int],
    *,
    trigger_turns: int = 10,
    trigger_tokens: int = 1_000,
    keep: int = 2,
    open_turns: Sequence[int] = (),
    covered: Sequence[int] = (),
) -> Plan:
    return plan(
        BufferView(
            known=True,
            turns=tuple(a_turn(n) for n in range(len(sizes))),
            open_turns=frozenset(f"t{n}" for n in open_turns),
        ),
        covered=frozenset(f"t{n}" for n in covered),
        tokens={f"t{n}": size for n, size in enumerate(sizes)},
        settings=Settings(
            summary_trigger_turns=trigger_turns,
            summary_trigger_tokens=trigger_tokens,
            summary_keep_turns=keep,
        ),
    )


def ids(planned: Plan) -> list[str]:
    return [turn.turn_id for turn in planned.turns]


def test_below_both_triggers_everything_stays() -> None:
    assert decide([10, 10], trigger_turns=3).idle


def test_at_the_trigger_the_oldest_turns_go_and_the_latest_stay() -> None:
    assert ids(decide([10] * 3, trigger_turns=3, keep=2)) == ["t0"]
    assert ids(decide([10] * 10, trigger_turns=3, keep=2)) == [f"t{n}" for n in range(8)]


def test_where_fewer_turns_wait_than_are_kept_none_goes() -> None:
    assert decide([10] * 4, trigger_turns=3, keep=4).idle
    assert ids(decide([10] * 5, trigger_turns=3, keep=4)) == ["t0"]


def test_many_tokens_in_few_turns_leave_only_what_would_not_trigger_again() -> None:
    assert ids(decide([400, 400, 300], keep=2)) == ["t0"]
    assert ids(decide([300, 600, 600], keep=2)) == ["t0", "t1"], "the last two alone would trigger again"


def test_the_latest_turn_always_stays_however_large_it_is() -> None:
    assert decide([5_000]).idle
    assert ids(decide([10, 5_000])) == ["t0"]


def test_a_turn_that_still_grows_neither_counts_nor_goes() -> None:
    assert decide([10] * 3, trigger_turns=3, keep=1, open_turns=[0]).idle
    assert ids(decide([10] * 4, trigger_turns=3, keep=1, open_turns=[0])) == ["t1", "t2"]


def test_a_covered_turn_is_only_trimmed_and_no_longer_counts() -> None:
    planned = decide([10] * 4, trigger_turns=3, keep=1, covered=[0, 1])
    assert (planned.trim_only, ids(planned)) == (("t0", "t1"), [])
    planned = decide([10] * 5, trigger_turns=3, keep=1, covered=[1, 3])
    assert (planned.trim_only, ids(planned)) == (("t1", "t3"), ["t0", "t2"])


def test_a_backlog_goes_in_steps() -> None:
    assert ids(decide([900] * 8, keep=1)) == ["t0", "t1"]
    assert ids(decide([9_000] * 8, keep=1)) == ["t0"], "one that is too large goes alone"


@given(
    sizes=st.lists(st.integers(0, 2_000), max_size=15),
    trigger=st.integers(1, 12),
    keep=st.integers(1, 12),
    data=st.data(),
)
def test_whatever_is_in_the_buffer_the_plan_is_sound(
    sizes: list[int], trigger: int, keep: int, data: st.DataObject
) -> None:
    some = st.lists(st.sampled_from(range(len(sizes))), unique=True) if sizes else st.just(list[int]())
    open_turns, covered = data.draw(some), data.draw(some)
    planned = decide(sizes, trigger_turns=trigger, keep=keep, open_turns=open_turns, covered=covered)
    waiting = [f"t{n}" for n in range(len(sizes)) if n not in open_turns and n not in covered]
    gone = ids(planned)
    assert gone == waiting[: len(gone)], "the oldest, in order, without a hole"
    assert not waiting or len(gone) < len(waiting), "the latest stays"
    assert set(planned.trim_only) == {f"t{n}" for n in covered if n not in open_turns}
    kept_tokens = sum(sizes[int(turn[1:])] for turn in waiting)
    if kept_tokens < 1_000 and len(waiting) < trigger:
        assert not gone


# --- what a model may not leave out ----------------------------------------------------------------


def line(kind: str, text: str) -> SummaryLine:
    return SummaryLine(kind=kind, text=text, turn_id="t1", at=BEGAN)


def test_a_rule_or_veto_that_the_model_left_out_is_put_back_word_for_word() -> None:
    veto, rule = line("veto", "Nunca  borres la base"), line("rule", "Cap timeouts at 30 seconds")
    digest, fact = line("digest", "Talked about caching"), line("fact", "Uses Valkey")
    assert checked([veto, rule, fact], [digest]) == (veto, rule, digest)
    assert checked([rule, fact], [rule, digest]) == (rule, digest)
    respaced = line("veto", "Nunca borres la base")
    assert checked([veto], [respaced]) == (respaced,)


def test_a_model_that_forgets_everything_is_refused() -> None:
    with pytest.raises(ModelAnswerInvalid):
        checked([line("fact", "Uses Valkey")], [])
    assert checked([], []) == ()


def test_binary_data_and_signatures_do_not_count_as_text() -> None:
    turn = Turn.model_validate(
        {
            **a_turn(1).to_json(),
            "events": [
                {
                    "content": {
                        "parts": [
                            {"text": "mira esto", "thought_signature": "S" * 900},
                            {"inline_data": {"mime_type": "image/png", "data": "A" * 900}},
                            {"function_call": {"name": "paint", "args": {"colour": "añil"}}},
                        ]
                    }
                }
            ],
        }
    )
    text = readable(turn)
    assert "mira esto" in text
    assert "añil" in text
    assert len(text) < 200
