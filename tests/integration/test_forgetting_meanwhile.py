"""A worker that is at work while something is forgotten brings nothing of it back."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from lamina.errors import Forgotten, ModelRefused, StaleVersion
from lamina.forgetting import Selection
from lamina.postgres.tombstones import enter
from lamina.postgres.turn_log import log_turns
from lamina.testing.models import ScriptedModel, default_summary
from lamina_services.local.polling import until
from tests.builders import APP, BEGAN, a_turn
from tests.fixtures_valkey import valkey_url
from tests.integration.forgetting_world import (
    MemoryWorld,
    Slow,
    a_name,
    pubsub,
    words_of,
    world,
)

__all__ = ["pubsub", "valkey_url", "world"]


@pytest.mark.parametrize(
    ("stage", "part", "method", "raised"),
    [
        ("summarise", "model", "summarise", True),
        ("extract", "model", "extract", True),
        ("extract", "embedder", "documents", False),
        ("embed", "embedder", "documents", True),
    ],
)
async def test_what_a_worker_has_in_hand_is_not_brought_back(
    world: MemoryWorld, stage: str, part: str, method: str, raised: bool
) -> None:
    ana = a_name()
    turns = [turn for turn in await world.fill(ana) if turn.session_id == "s1"]
    another = a_turn(ana, 9, session="s1", project_id="shop", user=f"I prefer the zq{ana}s1x9 theme.")
    more = a_turn(ana, 8, session="s1", project_id="shop", user=f"I prefer the zq{ana}s1x8 theme.")
    for turn in (more, another):
        await world.publish(turn)
    slow = Slow(getattr(world, part), method)
    working = asyncio.create_task(getattr(world, stage)(another, **{part: slow}))
    await asyncio.wait_for(slow.called.wait(), 10)
    await world.forget(Selection(APP, ana, session_id="s1"))
    slow.go_on.set()
    if raised:
        with pytest.raises(Forgotten):
            await working
    else:
        await working
    assert await world.words(words_of([*turns, another, more])) == set()


@pytest.mark.parametrize(("stage", "method"), [("summarise", "summarise"), ("extract", "extract")])
async def test_what_a_model_refuses_meanwhile_is_not_parked(
    world: MemoryWorld, stage: str, method: str
) -> None:
    ana = a_name()
    turns = [a_turn(ana, n, user=f"I prefer the zq{ana}x{n} theme.") for n in range(6)]
    for turn in turns:
        await world.publish(turn)

    def refuse(*arguments: Any) -> Any:
        if method == "extract" or turns[1] in arguments[1]:
            raise ModelRefused("blocked")
        return default_summary(*arguments)

    slow = Slow(ScriptedModel(extractions=[refuse], summaries=[refuse] * 12), method)
    parked = len(world.topic.parked)
    working = asyncio.create_task(getattr(world, stage)(turns[-1], model=slow))
    await asyncio.wait_for(slow.called.wait(), 10)
    await world.forget(Selection(APP, ana))
    slow.go_on.set()
    with pytest.raises(Forgotten):
        await working
    assert len(world.topic.parked) == parked


async def test_a_summary_that_inherits_what_is_forgotten_meanwhile_is_made_again(world: MemoryWorld) -> None:
    ana = a_name()
    gone = [turn for turn in await world.fill(ana) if turn.session_id == "s1"]
    heirs = [
        a_turn(
            ana,
            number,
            session="s9",
            previous_session_id="s1",
            project_id="shop",
            occurred_at=BEGAN + timedelta(hours=8, minutes=number),
            user=f"I prefer the zq{ana}s9x{number} theme.",
        )
        for number in (1, 2, 3)
    ]
    for turn in heirs:
        await world.publish(turn)
    inherited = await world.summaries.latest(heirs[0].session, "s1", "shop")
    assert any(words_of(gone[:1]).pop() in line.text for line in inherited.lines)
    slow = Slow(world.model, "summarise")
    working = asyncio.create_task(world.summarise(heirs[-1], model=slow))
    await asyncio.wait_for(slow.called.wait(), 10)
    await world.forget(Selection(APP, ana, session_id="s1"))
    slow.go_on.set()
    await working
    assert await world.words(words_of(gone)) == set()
    assert "summaries" in await world.words(words_of(heirs[:1]))


async def test_a_summary_is_not_cached_once_it_was_forgotten(world: MemoryWorld) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    more = [
        a_turn(ana, number, session="s3", user=f"I prefer the zq{ana}s3x{number} theme.", occurred_at=at)
        for number in (6, 7, 8)
        for at in [BEGAN + timedelta(hours=2, minutes=number)]
    ]
    for turn in more:
        await world.publish(turn)
    slow = Slow(world.summaries, "commit")
    slow_commit = asyncio.create_task(world.summarise(more[-1], summaries=_keywords(slow, world)))
    await asyncio.wait_for(slow.called.wait(), 10)
    await world.forget(Selection(APP, ana, project_id="shop"))
    slow.go_on.set()
    await slow_commit
    gone = [turn for turn in turns if turn.project_id == "shop"]
    assert await world.words(words_of(gone)) == set()


def _keywords(slow: Slow, world: MemoryWorld) -> Any:
    """Commits once slowly, with its keyword, and then as ever."""

    class Summaries:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.summaries, name)

        async def commit(self, *arguments: Any, **named: Any) -> Any:
            stored = await world.summaries.commit(*arguments, **named)
            slow.called.set()
            await slow.go_on.wait()
            return stored

    return Summaries()


async def test_whoever_writes_meanwhile_is_waited_for(world: MemoryWorld) -> None:
    ana = a_name()
    turn = a_turn(ana, 1, user=f"zq{ana}meanwhile")
    async with world.episodes_database.as_user(APP, ana) as conn:
        (await enter(conn, APP, ana)).refuse(turn)
        await log_turns(conn, turn.session, [turn])
        forgetting = asyncio.create_task(world.forget(Selection(APP, ana)))
        await until(world.somebody_waits, timeout_s=10, what="the one who forgets", every_s=0.02)
        assert not forgetting.done()
    assert (await forgetting).database["turns"] == 1
    assert await world.words({f"zq{ana}meanwhile"}) == set()


async def test_a_compaction_in_hand_covers_nothing_that_was_forgotten(world: MemoryWorld) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    slow = Slow(ScriptedModel(), "consolidate")
    working = asyncio.create_task(world.compact(ana, "blog", BEGAN + timedelta(hours=9), model=slow))
    await asyncio.wait_for(slow.called.wait(), 10)
    await world.forget(Selection(APP, ana, session_id="s2"))
    slow.go_on.set()
    with pytest.raises(StaleVersion):
        await working
    await world.compact(ana, "blog", BEGAN + timedelta(hours=9))
    assert await world.words(words_of([turn for turn in turns if turn.session_id == "s2"])) == set()
