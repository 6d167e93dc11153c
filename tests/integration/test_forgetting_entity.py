"""One thing that was said is forgotten: its statements and the lines that repeat it, and not its turn."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from lamina.errors import NotFound
from lamina.forgetting import Selection
from lamina.model import Turn
from tests.builders import APP, BEGAN, a_statement, a_turn
from tests.fixtures_valkey import valkey_url
from tests.integration.forgetting_world import (
    MemoryWorld,
    Slow,
    a_name,
    pubsub,
    story_of,
    words_of,
    world,
)

__all__ = ["pubsub", "valkey_url", "world"]


async def stated(world: MemoryWorld, turn: Turn) -> set[str]:
    """Where the turn's word is stated: digests of the turn and the turn itself aside."""
    word = words_of([turn]).pop()
    rows = await world.rows(turn.user_id)
    places = {
        table
        for table in ("statements", "entities", "compaction_lines")
        for row in rows[table]
        if word in row["text"] and row["kind"] != "digest"
    }
    for table in ("summaries", "compactions"):
        lines = [line for row in rows[table] for line in row["lines"]]
        if any(word in line["text"] and line["kind"] != "digest" for line in lines):
            places.add(table)
    cached = (await world.buffer.read(turn.session)).summary
    if cached and any(word in line.text and line.kind != "digest" for line in cached.lines):
        places.add("cached summary")
    return places


async def test_an_entity_goes_from_statements_and_lines_and_is_not_learned_again(world: MemoryWorld) -> None:
    ana = a_name()
    turns = [turn for turn in story_of(ana) if turn.session_id == "s1"]
    first, later = turns[0], BEGAN + timedelta(days=1)
    await world.live(turns)
    await world.compact(ana, "shop", later, model=world.model)
    everywhere = {"statements", "entities", "summaries", "cached summary", "compactions", "compaction_lines"}
    assert await stated(world, first) == everywhere
    [view] = [view for view in await world.entities.known(first) if words_of([first]).pop() in view.text]
    chosen = Selection(APP, ana, entity_id=view.entity_id)

    receipt = await world.forget(chosen)
    assert await stated(world, first) == set()
    assert {"summary lines", "compaction lines", "statements"} <= receipt.database.keys()
    assert receipt.stays == {"turns that said so": 1}
    for turn in turns[1:]:
        assert {"statements", "entities"} <= await stated(world, turn)
    assert await world.episodes.turn(first.session, "t1") == first

    elsewhere = a_statement(first, view.text.upper(), subject="another slot")
    await world.forget_marks(ana)
    assert not (await world.entities.absorb(first, [elsewhere], "another extractor", uuid.uuid4())).changed
    await world.forget_marks(ana)  # so that every turn is extracted again, as by a new extractor
    await world.live(turns)
    await world.live([a_turn(ana, number, session="s1", project_id="shop") for number in (5, 6, 7)])
    assert await stated(world, first) == set()
    assert (await world.forget(chosen)).total == 0

    again = a_turn(ana, 8, occurred_at=datetime.now(UTC) + timedelta(seconds=1), user=first_words(first))
    await world.live([again])
    assert "entities" in await stated(world, first), "said anew, it is new"


def first_words(turn: Turn) -> str:
    return next(turn.events[0].texts())


@pytest.mark.parametrize("part", ["summarise", "extract", "consolidate"])
async def test_what_says_the_entity_at_this_moment_is_not_brought_back(world: MemoryWorld, part: str) -> None:
    ana = a_name()
    turns = [turn for turn in story_of(ana) if turn.session_id == "s1"]
    for turn in turns:
        await world.publish(turn)
        await world.embed(turn)
    await world.extract(turns[0])
    [view] = await world.entities.known(turns[0])
    if part == "extract":  # as an extractor that has not done it yet
        await world.forget_marks(ana)
    slow = Slow(world.model, part)
    work = {
        "summarise": lambda: world.summarise(turns[3], model=slow),
        "extract": lambda: world.extract(turns[0], model=slow),
        "consolidate": lambda: world.compact(ana, "shop", BEGAN + timedelta(days=1), model=slow),
    }
    working = asyncio.create_task(work[part]())
    await asyncio.wait_for(slow.called.wait(), 10)
    await world.forget(Selection(APP, ana, entity_id=view.entity_id))
    slow.go_on.set()
    await working
    assert await stated(world, turns[0]) == set()


async def test_an_entity_that_is_not_there_is_not_found(world: MemoryWorld) -> None:
    with pytest.raises(NotFound):
        await world.forget(Selection(APP, a_name(), entity_id=uuid.uuid4()))
