"""A turn that the model refuses: set aside, parked, and never in its session's way."""

import json
from collections.abc import Sequence

import pytest

from lamina.dead_letters import Failure
from lamina.errors import DependencyUnavailable, ModelRefused
from lamina.model import SummaryLine, Turn
from lamina.settings import Settings
from tests.unit.summarizer_world import SESSION, ModelThatKeepsEverything, World, a_turn


@pytest.fixture
def world() -> World:
    return World()


class Squeamish(ModelThatKeepsEverything):
    """Refuses whatever holds one of these turns."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.refused = set(refused)

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        if self.refused & {turn.turn_id for turn in turns}:
            raise ModelRefused("safety")
        return await super().summarise(previous, turns, budget)


def parked_turns(world: World) -> list[tuple[str, str, str]]:
    """(subscription, turn, error) of each dead letter."""
    return [
        (
            subscription,
            json.loads(letter.data)["turn"]["turn_id"],
            Failure.of(letter.attributes).error,
        )
        for subscription, letter in world.publisher.parked
    ]


async def test_a_turn_the_model_refuses_is_set_aside_and_its_session_goes_on(world: World) -> None:
    world.settings = Settings(summary_trigger_turns=6, summary_keep_turns=1)
    turns = [a_turn(n) for n in range(6)]
    await world.record(*turns)
    await world.summarise(turns[-1], model=Squeamish("t02"))
    assert (world.summary, await world.buffered()) == (["t00", "t01", "t03", "t04"], ["t05"])
    assert parked_turns(world) == [("summarizer", "t02", "ModelRefused")]
    assert await world.summaries.covered(SESSION, ["t02"]) == {"t02"}
    assert await world.summaries.is_set_aside(SESSION, "t02")
    assert not await world.summaries.is_set_aside(SESSION, "t01")


async def test_what_was_set_aside_is_summarised_when_it_comes_again_and_the_model_takes_it(
    world: World,
) -> None:
    turns = [a_turn(n) for n in range(4)]
    await world.record(*turns)
    await world.summarise(turns[-1], model=Squeamish("t01"))
    await world.summarise(turns[1])
    assert (world.summary, await world.buffered()) == (["t00", "t01"], ["t02", "t03"])
    assert not await world.summaries.is_set_aside(SESSION, "t01")
    assert (await world.buffer.read(SESSION)).summary == world.summaries.versions[SESSION][-1]


async def test_what_is_refused_again_fails_again_and_changes_nothing(world: World) -> None:
    turns = [a_turn(n) for n in range(4)]
    await world.record(*turns)
    await world.summarise(turns[-1], model=Squeamish("t01"))
    before = await world.end()
    with pytest.raises(ModelRefused):
        await world.summarise(turns[1], model=Squeamish("t01"))
    assert await world.end() == before
    assert len(world.publisher.parked) == 1


async def test_a_model_that_refuses_every_turn_sets_none_aside(world: World) -> None:
    turns = [a_turn(n) for n in range(4)]
    await world.record(*turns)
    with pytest.raises(ModelRefused):
        await world.summarise(turns[-1], model=Squeamish(*(turn.turn_id for turn in turns)))
    assert (world.summary, len(await world.buffered()), world.publisher.parked) == ([], 4, [])


async def test_a_dead_letter_that_cannot_be_parked_leaves_its_turn_in_the_buffer(world: World) -> None:
    turns = [a_turn(n) for n in range(4)]
    await world.record(*turns)

    def down() -> None:
        raise DependencyUnavailable("pubsub", "down")

    world.publisher.fail = down
    with pytest.raises(DependencyUnavailable):
        await world.summarise(turns[-1], model=Squeamish("t01"))
    assert (world.summary, len(await world.buffered())) == ([], 4)
    world.publisher.fail = None
    await world.summarise(turns[-1], model=Squeamish("t01"))
    assert (world.summary, parked_turns(world)) == (["t00"], [("summarizer", "t01", "ModelRefused")])
