"""The summarizer and turns that were forgotten meanwhile: it loses those, and no other."""

from datetime import timedelta

import pytest

from lamina.errors import Forgotten
from lamina.forgetting import Tombstone
from lamina.model import Summary, SummaryLine
from tests.unit.summarizer_world import BEGAN, SESSION, World, a_turn


def forget_until(world: World, number: int) -> None:
    """The database has a tombstone for the turns up to this one; the buffer has not heard of it."""
    stone = Tombstone(
        scope="session", owner=SESSION.session_id, forgotten_at=BEGAN + timedelta(minutes=number)
    )
    world.summaries.tombstones.add(SESSION.app, SESSION.user_id, stone)


async def test_a_batch_loses_its_forgotten_turns_and_no_other() -> None:
    world = World()
    turns = [a_turn(number) for number in range(1, 8)]
    await world.record(*turns)
    forget_until(world, 2)
    await world.summarise(turns[-1])
    assert world.summary == ["t03", "t04", "t05"]
    assert await world.buffered() == ["t06", "t07"]


async def test_the_event_of_a_forgotten_turn_is_refused_and_the_turn_leaves_the_buffer() -> None:
    world = World()
    late, kept = a_turn(1), a_turn(3)
    await world.record(kept)
    forget_until(world, 2)
    with pytest.raises(Forgotten):
        await world.summarise(late)
    assert await world.buffered() == ["t03"]
    assert world.model.calls == 0


async def test_a_cached_summary_that_the_database_does_not_have_goes() -> None:
    world = World()
    turns = [a_turn(number) for number in (1, 2)]
    await world.record(*turns)
    line = SummaryLine(kind="digest", text="forgotten", turn_id="t00", at=BEGAN)
    await world.buffer.trim(SESSION, [], Summary(session=SESSION, version=3, lines=(line,), model="m"))
    await world.summarise(turns[-1])
    assert (await world.buffer.read(SESSION)).summary is None
    assert await world.buffered() == ["t01", "t02"]
