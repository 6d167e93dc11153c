"""What fits into a prompt."""

from hypothesis import given
from hypothesis import strategies as st

from lamina.recall.budget import Offer, Section, fill

offers = st.lists(
    st.builds(Offer, tokens=st.integers(1, 300), value=st.floats(0, 3, allow_nan=False)), max_size=12
)
sections = st.lists(
    st.builds(
        Section,
        name=st.sampled_from(["a", "b", "c", "d"]),
        share=st.floats(0, 1, allow_nan=False),
        offers=offers,
        unbroken=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda section: section.name,
)


@given(st.integers(-50, 2_000), sections)
def test_what_is_chosen_never_exceeds_the_budget(budget: int, given_sections: list[Section]) -> None:
    chosen = fill(budget, given_sections)
    spent = sum(section.offers[i].tokens for section in given_sections for i in chosen[section.name])
    assert spent <= max(0, budget)


@given(sections)
def test_everything_is_chosen_where_everything_fits(given_sections: list[Section]) -> None:
    chosen = fill(1_000_000, given_sections)
    assert chosen == {section.name: list(range(len(section.offers))) for section in given_sections}


@given(st.integers(0, 2_000), offers)
def test_a_conversation_is_chosen_without_holes(budget: int, turns: list[Offer]) -> None:
    chosen = fill(budget, [Section("recent", 0.5, turns, unbroken=True)])["recent"]
    assert chosen == list(range(len(chosen)))


def test_a_section_cannot_take_what_another_is_promised() -> None:
    greedy = Section("greedy", 0.5, [Offer(50)] * 10)
    modest = Section("modest", 0.5, [Offer(50)] * 10)
    assert {name: len(all_) for name, all_ in fill(200, [greedy, modest]).items()} == {
        "greedy": 2,
        "modest": 2,
    }


def test_what_one_section_leaves_over_goes_to_the_next() -> None:
    chosen = fill(200, [Section("empty", 0.5), Section("full", 0.5, [Offer(50)] * 10)])
    assert len(chosen["full"]) == 4


def test_the_more_valuable_for_its_size_comes_first() -> None:
    chosen = fill(100, [Section("s", 1.0, [Offer(100, 1.0), Offer(50, 0.9), Offer(50, 0.9)])])
    assert chosen["s"] == [1, 2]


def test_an_aside_does_not_crowd_out_an_answer() -> None:
    answer, aside = Offer(100, 2.0), Offer(5, 0.3)
    assert fill(100, [Section("s", 1.0, [aside, answer])])["s"] == [1]
