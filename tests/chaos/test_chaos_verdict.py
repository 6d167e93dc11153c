"""The judge of the chaos runs: whatever is amiss is found, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lamina.errors import ModelUnavailable
from lamina.model import Turn
from lamina.ports import BufferView
from lamina_services.chaos.delivery import shuffled
from lamina_services.chaos.faults import schedule
from lamina_services.chaos.memory import Memory
from lamina_services.chaos.model import Chance
from lamina_services.chaos.story import Poison, Story, told
from lamina_services.chaos.verdict import judged

STORY = told(3, 40, 10)
TURN = STORY.turns[0]


def key_of(turn: Turn) -> tuple[str, ...]:
    return (turn.app, turn.user_id, turn.session_id, turn.turn_id)


def latest(story: Story) -> dict[str, Turn]:
    """The last turn of each session."""
    return {turn.session.digest: turn for turn in sorted(story.turns, key=lambda turn: turn.order)}


def perfect(story: Story) -> Memory:
    """What a settled stack remembers of a story."""
    last = latest(story)
    return Memory(
        turns={key_of(turn): turn.to_json() for turn in story.turns},
        buffers={turn.session.digest: BufferView(known=True, turns=(turn,)) for turn in last.values()},
        covered={key_of(turn): (False,) for turn in story.turns if turn != last[turn.session.digest]},
        kinds={"entities": {("e1",): ("I prefer dark mode", None)}},
    )


def found(memory: Memory, parked: frozenset[Poison] = STORY.poison) -> dict[str, int]:
    verdict = judged(STORY, memory, parked, perfect(STORY))
    assert verdict.clean == (not any(verdict.by_kind().values()))
    return {kind: len(findings) for kind, findings in verdict.by_kind().items() if findings}


def without(rows: dict[Any, Any], key: Any) -> dict[Any, Any]:
    return {each: value for each, value in rows.items() if each != key}


def test_a_perfect_memory_is_clean() -> None:
    assert found(perfect(STORY)) == {}


HELD = next(iter(latest(STORY).values()))
COVERED = next(turn for turn in STORY.turns if turn not in latest(STORY).values())


def a_turn_less(memory: Memory) -> Memory:
    return replace(memory, turns=without(memory.turns, key_of(TURN)))


def an_event_less(memory: Memory) -> Memory:
    return replace(memory, turns={**memory.turns, key_of(TURN): {**TURN.to_json(), "events": []}})


def a_turn_more(memory: Memory) -> Memory:
    return replace(memory, turns={**memory.turns, ("a", "b", "c", "d"): {}})


def a_turn_in_neither_place(memory: Memory) -> Memory:
    return replace(memory, covered=without(memory.covered, key_of(COVERED)))


def a_buffer_less(memory: Memory) -> Memory:
    return replace(memory, buffers={**memory.buffers, HELD.session.digest: BufferView(known=False)})


def a_turn_in_both_places(memory: Memory) -> Memory:
    digest = COVERED.session.digest
    both = replace(memory.buffers[digest], turns=(COVERED, *memory.buffers[digest].turns))
    return replace(memory, buffers={**memory.buffers, digest: both})


def a_turn_set_aside(memory: Memory) -> Memory:
    return replace(memory, covered={**memory.covered, key_of(COVERED): (True,)})


def another_entity(memory: Memory) -> Memory:
    return replace(memory, kinds={"entities": {("e1",): ("I prefer light mode", None)}})


def an_entity_less(memory: Memory) -> Memory:
    return replace(memory, kinds={"entities": {}})


def an_entity_more(memory: Memory) -> Memory:
    return replace(memory, kinds={"entities": {**memory.kinds["entities"], ("e2",): ("More", None)}})


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (a_turn_less, "lost"),
        (an_event_less, "differing"),
        (a_turn_more, "duplicated"),
        (a_turn_in_neither_place, "lost"),
        (a_buffer_less, "lost"),
        (a_turn_in_both_places, "duplicated"),
        (a_turn_set_aside, "differing"),
        (another_entity, "differing"),
        (an_entity_less, "lost"),
        (an_entity_more, "duplicated"),
    ],
)
def test_what_is_amiss_is_found(spoil: Callable[[Memory], Memory], finding: str) -> None:
    assert finding in found(spoil(perfect(STORY)))


def test_poison_that_is_not_parked_and_anything_else_that_is_are_found() -> None:
    assert found(perfect(STORY), frozenset(list(STORY.poison)[1:])) == {"poison": 1}
    stray = Poison("a/b/c/d", "summarizer", "InvalidEvent")
    assert found(perfect(STORY), STORY.poison | {stray}) == {"poison": 1}


def test_a_seed_decides_everything() -> None:
    assert told(3, 40, 10) == STORY
    assert told(4, 40, 10) != STORY
    assert schedule(3, 20, 1.0) == schedule(3, 20, 1.0) != schedule(4, 20, 1.0)
    assert shuffled("3", STORY.turns) == shuffled("3", STORY.turns) != shuffled("4", STORY.turns)


def test_twenty_poisons_are_spread_over_sessions_that_have_one_each() -> None:
    assert len(STORY.poison) == 20
    in_sessions = [poison.key.rpartition("/")[0] for poison in STORY.poison if "/" in poison.key]
    assert len(set(in_sessions)) == len(in_sessions) == 10


def test_a_failing_call_is_drawn_anew_when_it_is_tried_again() -> None:
    chance = Chance({"LAMINA_CHAOS_RATE": "0.5", "LAMINA_CHAOS_SEED": "1"})

    def fails() -> bool:
        try:
            chance.take("extract", "t1")
        except ModelUnavailable:
            return True
        return False

    assert len({fails() for _ in range(20)}) == 2
