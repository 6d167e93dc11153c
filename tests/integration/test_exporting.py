"""An export is the whole memory and says so; what was published comes out of it exactly."""

import json
from collections import Counter
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina import strict_json
from lamina.forgetting import Selection
from lamina.model import Turn
from lamina.valkey.sessions import ValkeySessions
from lamina_services.forgetting.exporting import KINDS, export
from tests.builders import APP, BEGAN, a_turn
from tests.fixtures_valkey import valkey_url
from tests.integration.forgetting_world import MemoryWorld, a_name, pubsub, world
from tests.strategies import events

__all__ = ["pubsub", "valkey_url", "world"]


async def exported(world: MemoryWorld, chosen: Selection, *, vectors: bool = False) -> list[dict[str, Any]]:
    lines = export(
        chosen,
        database=world.operator,
        buffer=world.buffer,
        buffered=ValkeySessions(world.client),
        vectors=vectors,
    )
    async with aclosing(lines):
        return [strict_json.loads(line) async for line in lines]


def turns_in(lines: list[dict[str, Any]]) -> list[Turn]:
    return [Turn.model_validate(line["turn"]) for line in lines if line["kind"] == "turn"]


async def test_everything_is_there_in_order_and_counted(world: MemoryWorld) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    await world.fill(a_name())
    await world.forget(Selection(APP, ana, session_id="s4"))
    kept = [turn for turn in turns if turn.session_id != "s4"]
    lines = await exported(world, Selection(APP, ana))
    assert turns_in(lines) == sorted(kept, key=lambda turn: (turn.session_id, *turn.order))
    counts = Counter(line["kind"] for line in lines[:-1])
    assert lines[-1] == {"kind": "end", "app": APP, "user_id": ana, "counts": dict(counts)}
    assert set(counts) == set(KINDS)
    assert [line["kind"] for line in lines[:-1]] == sorted(
        (line["kind"] for line in lines[:-1]), key=KINDS.index
    )
    assert not any("embedding" in line[line["kind"]] for line in lines[:-1])
    assert await exported(world, Selection(APP, ana)) == lines


async def test_vectors_come_along_when_they_are_asked_for(world: MemoryWorld) -> None:
    ana = a_name()
    await world.live([a_turn(ana, 1, user="I prefer tea.")])
    lines = await exported(world, Selection(APP, ana), vectors=True)
    vectors = [line["episode"]["embedding"] for line in lines if line["kind"] == "episode"]
    assert vectors
    assert all(len(vector) == 768 for vector in vectors)


async def test_turns_that_only_the_buffer_has_stand_in_their_place(world: MemoryWorld) -> None:
    ana = a_name()
    turns = [a_turn(ana, number) for number in (1, 2, 3, 4)]
    for turn in (turns[1], turns[2]):
        await world.live([turn])
    for turn in (turns[0], turns[3]):
        await world.publish(turn)
    lines = await exported(world, Selection(APP, ana))
    assert turns_in(lines) == turns
    assert [line["logged"] for line in lines if line["kind"] == "turn"] == [False, True, True, False]


@pytest.mark.parametrize("chosen", [{"session_id": "s3"}, {"project_id": "shop"}], ids=["session", "project"])
async def test_a_part_is_what_forgetting_that_part_would_take(
    world: MemoryWorld, chosen: dict[str, Any]
) -> None:
    ana = a_name()
    await world.fill(ana)
    counts = (await exported(world, Selection(APP, ana, **chosen)))[-1]["counts"]
    receipt = await world.everywhere.forget(Selection(APP, ana, **chosen), act=False)
    for kind, table in (("turn", "turns"), ("statement", "statements"), ("episode", "episodes")):
        assert counts[kind] == receipt.database[table] > 0


async def test_a_user_of_whom_nothing_is_known_gives_an_end_and_nothing_else(world: MemoryWorld) -> None:
    lines = await exported(world, Selection(APP, a_name()))
    assert [line["kind"] for line in lines] == ["end"]
    assert json.loads(json.dumps(lines[0]))["counts"] == dict.fromkeys(KINDS, 0)


@given(st.lists(st.lists(events, min_size=1, max_size=3), min_size=1, max_size=3), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_was_published_comes_out_exactly(
    world: MemoryWorld, of_turns: list[list[dict[str, Any]]], logged: bool
) -> None:
    ana = a_name()
    turns = [
        Turn.model_validate(
            {
                "app": APP,
                "user_id": ana,
                "session_id": "s1",
                "turn_id": f"t{number}",
                "occurred_at": BEGAN + timedelta(minutes=number),
                "from_a_later_release": {"x": [None, 1e300]},
                "events": of_turn,
            }
        )
        for number, of_turn in enumerate(of_turns)
    ]
    for turn in turns:
        await world.publish(turn)
        if logged:
            await world.embed(turn)
    assert turns_in(await exported(world, Selection(APP, ana))) == turns
