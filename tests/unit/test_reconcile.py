"""Reconciliation is a pure function of the set of statements."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.model import Statement
from lamina.reconcile import entities_of, normalised
from tests.builders import APP, a_statement, a_turn


def said_in(number: int, session: str, subject: str, text: str, ordinal: int) -> Statement:
    return a_statement(a_turn("ana", number, session=session), text, subject=subject, ordinal=ordinal)


statements = st.builds(
    said_in,
    st.integers(0, 3),
    st.sampled_from(["s1", "s2"]),
    st.sampled_from(["theme", "timeout"]),
    st.sampled_from(["Dark", "dark!", "Light", "C", "C#"]),
    st.integers(0, 2),
)
# A turn says one thing at each position.
said_sets = st.lists(statements, max_size=8, unique_by=lambda s: (s.session_id, s.turn_id, s.ordinal))


@given(said=said_sets, data=st.data())
def test_order_and_duplicates_make_no_difference(said: list[Statement], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(said), max_size=4)) if said else []
    shuffled = data.draw(st.permutations(said + again))
    assert entities_of(APP, "ana", shuffled) == entities_of(APP, "ana", said)


@given(said=said_sets)
def test_a_slot_is_held_by_one_entity_at_a_time_and_by_the_last_said_now(said: list[Statement]) -> None:
    entities = entities_of(APP, "ana", said)
    by_slot = {slot: [e for e in entities if e.statement.slot == slot] for slot in {s.slot for s in said}}
    for slot, chain in by_slot.items():
        for former, latter in pairwise(chain):
            assert (former.valid_to, former.superseded_by) == (latter.valid_from, latter.entity_id)
            assert normalised(former.statement.text) != normalised(latter.statement.text)
        last = max((s for s in said if s.slot == slot), key=lambda s: (*s.order, s.session_id))
        assert chain[-1].valid_to is None
        assert normalised(chain[-1].statement.text) == normalised(last.text)
    assert len({entity.entity_id for entity in entities}) == len(entities)


def test_another_user_never_gets_the_same_entity_ids() -> None:
    said = [a_statement(a_turn("ana"), "Dark")]
    assert entities_of(APP, "ana", said)[0].entity_id != entities_of(APP, "bo", said)[0].entity_id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use PostgreSQL.", "use  postgresql"),
        ("¿Modo oscuro?", "modo oscuro"),
        ("Configurac\u0327a\u0303o escura", "CONFIGURAÇÃO ESCURA"),
        ("「暗い」テーマ。", "暗い テーマ"),
        ("Prefers 'dark' mode", "prefers dark mode"),
    ],
)
def test_case_spacing_and_punctuation_do_not_tell_statements_apart(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Python 3.11", "Python 3 11"), ("C", "C#"), ("C", "C++"), ("modo año", "modo ano"), ("1:30", "130")],
)
def test_marks_inside_a_word_do(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)
