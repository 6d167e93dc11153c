"""The pure parts of a rebuild: what was known, in which steps sessions are folded, and the difference."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from lamina.model import Entity, Kind, Scope, SummaryLine
from lamina.reconcile import entities_of
from lamina_services.rebuild.difference import Change, counted, of_entities, of_lines
from lamina_services.rebuild.known import Known
from lamina_services.rebuild.steps import BACK, Covered, ancestors, in_lineage_order, steps_of
from tests.builders import APP, BEGAN, a_statement, a_turn


def covered(number: int, version: int, *, set_aside: bool = False) -> Covered:
    return Covered(f"t{number}", BEGAN + timedelta(minutes=number), version, set_aside)


def steps(*turns: Covered, limit: int = 100) -> list[list[str]]:
    return steps_of(turns, {turn.turn_id: 10 for turn in turns}, limit)


def test_each_step_takes_over_what_a_version_once_did() -> None:
    assert steps(covered(1, 1), covered(2, 1), covered(3, 2), covered(4, 4)) == [["t1", "t2"], ["t3"], ["t4"]]


def test_a_turn_that_came_late_is_folded_where_it_belongs() -> None:
    assert steps(covered(1, 1), covered(3, 1), covered(2, 2)) == [["t1", "t2"], ["t3"]]


def test_a_step_that_is_too_large_for_the_model_is_split_and_one_turn_always_goes() -> None:
    turns = [covered(number, 1) for number in range(1, 6)]
    assert steps(*turns, limit=25) == [["t1", "t2"], ["t3", "t4"], ["t5"]]
    assert steps(*turns[:2], limit=1) == [["t1"], ["t2"]]


def test_a_turn_that_was_set_aside_is_tried_alone() -> None:
    turns = [covered(1, 1), covered(2, 1, set_aside=True), covered(3, 1)]
    assert steps(*turns) == [["t1"], ["t2"], ["t3"]]
    assert steps(covered(1, 1, set_aside=True)) == [["t1"]]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(1, 60)), max_size=30),
    st.integers(1, 100),
)
def test_every_turn_is_in_exactly_one_step_and_no_step_is_larger_than_it_may_be(
    turns: list[tuple[int, bool, int]], limit: int
) -> None:
    listed = [covered(n, version, set_aside=aside) for n, (version, aside, _) in enumerate(turns)]
    sizes = {turn.turn_id: size for turn, (*_, size) in zip(listed, turns, strict=True)}
    made = steps_of(reversed(listed), sizes, limit)
    assert [turn_id for step in made for turn_id in step] == [turn.turn_id for turn in listed]
    assert all(len(step) == 1 or sum(sizes[turn_id] for turn_id in step) <= limit for step in made)


def test_sessions_come_behind_those_they_follow() -> None:
    assert in_lineage_order(["c", "a", "b"], {"c": "b", "b": "a", "a": None}) == ["a", "b", "c"]


def test_a_session_that_is_not_wanted_still_links_those_around_it() -> None:
    assert in_lineage_order(["c", "a"], {"c": "b", "b": "a"}) == ["a", "c"]
    assert ancestors("c", {"c": "b", "b": "a"}) == ["b", "a"]


def test_sessions_that_follow_one_another_in_a_circle_are_all_done_once() -> None:
    circle = {"a": "b", "b": "c", "c": "a", "d": "d"}
    assert sorted(in_lineage_order(["a", "b", "c", "d"], circle)) == ["a", "b", "c", "d"]
    assert ancestors("d", circle) == []


def test_ancestors_are_looked_for_as_far_back_as_the_database_does() -> None:
    chain = {f"s{number}": f"s{number + 1}" for number in range(40)}
    assert len(ancestors("s0", chain)) == BACK


def test_what_was_known_is_what_held_in_the_turns_scopes_the_latest_first() -> None:
    known = Known(APP, "ana")
    first = a_turn("ana", 1, project_id="shop")
    second = a_turn("ana", 2, session="s2", project_id="blog")
    known.learn(
        [
            a_statement(first, "Tabs", subject="indent"),
            a_statement(first, "Postgres", subject="database", ordinal=1, scope=Scope.PROJECT),
            a_statement(first, "Today only", subject="mood", ordinal=2, scope=Scope.SESSION),
            a_statement(second, "Spaces", subject="indent"),
        ]
    )
    later = a_turn("ana", 3, project_id="shop")
    latest, *others = (view.text for view in known.before(later))
    assert (latest, sorted(others)) == ("Spaces", ["Postgres", "Today only"])
    assert [view.text for view in known.before(second)] == ["Spaces"]
    assert [view.text for view in known.before(later, limit=1)] == ["Spaces"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 2)), unique=True, max_size=12))
def test_what_is_known_does_not_depend_on_the_order_of_learning(said: list[tuple[int, int, int]]) -> None:
    statements = [
        a_statement(a_turn("ana", number), f"text {text}", subject=f"subject {subject}", ordinal=ordinal)
        for ordinal, (number, subject, text) in enumerate(said)
    ]
    forward, backward = Known(APP, "ana"), Known(APP, "ana")
    for statement in statements:
        forward.learn([statement])
    backward.learn(reversed(statements))
    asked = a_turn("ana", 99)
    assert forward.before(asked) == backward.before(asked)
    current = [entity for entity in entities_of(APP, "ana", statements) if entity.valid_to is None]
    assert {view.entity_id for view in forward.before(asked)} == {entity.entity_id for entity in current}


def entities(*texts: tuple[str, str]) -> tuple[Entity, ...]:
    turn = a_turn("ana")
    return entities_of(
        APP,
        "ana",
        [a_statement(turn, text, subject=subject, ordinal=n) for n, (subject, text) in enumerate(texts)],
    )


def test_the_difference_of_entities_is_told_slot_by_slot() -> None:
    before = entities(("theme", "Dark"), ("indent", "Tabs"), ("editor", "Vim"))
    after = entities(("theme", "Dark"), ("indent", "Spaces"), ("shell", "Fish"))
    assert of_entities(before, after) == (
        Change("removed", "global: editor", "preference: Vim", ""),
        Change("changed", "global: indent", "preference: Tabs", "preference: Spaces"),
        Change("added", "global: shell", "", "preference: Fish"),
    )
    assert counted(of_entities(before, after)) == {"added": 1, "removed": 1, "changed": 1}


def test_another_kind_is_a_change_and_what_no_longer_holds_is_none() -> None:
    turn = a_turn("ana")
    rule = entities_of(APP, "ana", [a_statement(turn, "Dark", subject="theme", kind=Kind.RULE)])
    [change] = of_entities(entities(("theme", "Dark")), rule)
    assert (change.how, change.after) == ("changed", "rule: Dark")
    superseded = entities(("theme", "Light"), ("theme", "Dark"))
    assert of_entities(superseded, entities(("theme", "Dark"))) == ()


def test_the_difference_of_a_summary_is_the_lines_that_go_and_come() -> None:
    def line(text: str) -> SummaryLine:
        return SummaryLine(kind="digest", text=text, turn_id="t1", at=BEGAN)

    assert of_lines("s1", [line("a"), line("b")], [line("b"), line("c")]) == (
        Change("removed", "s1", before="digest: a"),
        Change("added", "s1", after="digest: c"),
    )
