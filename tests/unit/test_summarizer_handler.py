"""The summarizer: nothing is lost whatever crashes and whoever works at the same time."""

import asyncio
import copy
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from lamina.errors import DependencyUnavailable, ModelUnavailable, StaleVersion
from lamina.events import MemoryChanged, TurnRecorded
from lamina.model import SessionKey, Summary, SummaryLine, Turn
from lamina.settings import Settings
from lamina.testing.summaries import InMemorySummaries
from tests.unit.summarizer_world import BEFORE, BEGAN, SESSION, ModelThatKeepsEverything, World, a_turn


@pytest.fixture
def world() -> World:
    return World()


async def test_below_the_trigger_nothing_happens(world: World) -> None:
    await world.record(a_turn(0), a_turn(1))
    await world.summarise(a_turn(1))
    assert (world.summary, await world.buffered(), world.model.calls) == ([], ["t00", "t01"], 0)
    assert world.publisher.published == []


async def test_at_the_trigger_the_oldest_turns_move_from_the_buffer_into_the_summary(world: World) -> None:
    await world.record(*(a_turn(n) for n in range(4)))
    await world.summarise(a_turn(3))
    assert (world.summary, await world.buffered()) == (["t00", "t01"], ["t02", "t03"])
    assert (await world.buffer.read(SESSION)).summary == world.summaries.versions[SESSION][-1]
    event = TurnRecorded(turn=a_turn(3))
    assert world.publisher.published == [
        MemoryChanged(
            app="shop",
            user_id="ana",
            session_id="s2",
            stage="summary",
            caused_by=event.event_id(),
            changed=("s2:1",),
        )
    ]


async def test_a_redelivery_after_success_changes_nothing(world: World) -> None:
    await world.record(*(a_turn(n) for n in range(4)))
    await world.summarise(a_turn(3))
    end = await world.end()
    for number in (3, 0, 1):
        await world.summarise(a_turn(number))
    assert (await world.end(), world.model.calls) == (end, 1)


async def test_each_summary_builds_on_the_one_before(world: World) -> None:
    for number in range(9):
        await world.record(a_turn(number))
        await world.summarise(a_turn(number))
    assert world.summary == [f"t{n:02}" for n in range(7)]
    assert await world.buffered() == ["t07", "t08"]
    assert [each.version for each in world.summaries.versions[SESSION]] == list(range(1, 8))


async def test_a_new_session_starts_from_the_summary_of_the_one_before(world: World) -> None:
    rule = SummaryLine(kind="rule", text="Cap timeouts at 30 seconds", turn_id="old", at=BEGAN)
    await world.summaries.commit(
        Summary(session=BEFORE, version=1, lines=(rule,)), [], TurnRecorded(turn=a_turn(0)).event_id()
    )
    turns = [a_turn(n, previous_session_id="s1") for n in range(3)]
    await world.record(*turns)
    await world.summarise(turns[2])
    assert world.summary == ["Cap timeouts at 30 seconds", "t00"]


async def test_any_turn_of_the_session_may_name_the_session_before(world: World) -> None:
    rule = SummaryLine(kind="rule", text="Never deploy on Friday", turn_id="old", at=BEGAN)
    await world.summaries.commit(Summary(session=BEFORE, version=1, lines=(rule,)), [], uuid.uuid4())
    turns = [a_turn(0, previous_session_id="s1"), a_turn(1), a_turn(2)]
    await world.record(*turns)
    await world.summarise(turns[2])
    assert world.summary == ["Never deploy on Friday", "t00"]


async def test_a_backlog_is_worked_off_in_several_summaries(world: World) -> None:
    world.settings = Settings(summary_trigger_turns=3, summary_keep_turns=1, summary_trigger_tokens=120)
    await world.record(*(a_turn(n) for n in range(20)))
    await world.summarise(a_turn(19))
    assert len(world.summaries.versions[SESSION]) > 1
    assert [*world.summary, *await world.buffered()] == [f"t{n:02}" for n in range(20)]
    changes = [p.event_id() for p in world.publisher.published]
    assert len(set(changes)) == len(world.summaries.versions[SESSION]), "each is announced by its own event"


# --- crashes ---------------------------------------------------------------------------------------


class CrashError(Exception):
    """The process dies here."""


class Crashing:
    """A port whose `method` crashes, `after` its work or before; everything else goes through."""

    def __init__(self, port: Any, method: str, *, after: bool) -> None:
        self._port, self._method, self._after = port, method, after

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            return getattr(self._port, name)

        async def crash(*args: Any, **kwargs: Any) -> None:
            if self._after:
                await getattr(self._port, name)(*args, **kwargs)
            raise CrashError

        return crash


STEPS = [
    ("buffer", "read"),
    ("summaries", "uncovered"),
    ("summaries", "covered"),
    ("summaries", "latest"),
    ("model", "summarise"),
    ("summaries", "commit"),
    ("publisher", "publish"),
    ("buffer", "trim"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("part", "method"), STEPS)
async def test_a_crash_at_any_step_and_a_redelivery_end_in_the_same_state(
    part: str, method: str, after: bool
) -> None:
    undisturbed, world = World(), World()
    for each in (undisturbed, world):
        await each.record(*(a_turn(n) for n in range(4)))
    await undisturbed.summarise(a_turn(3))
    with pytest.raises(CrashError):
        await world.summarise(a_turn(3), **{part: Crashing(getattr(world, part), method, after=after)})
    kept = [*world.summary, *await world.buffered()]
    assert {f"t{n:02}" for n in range(4)} <= set(kept), "nothing is gone in between"
    await world.summarise(a_turn(3))
    assert await world.end() == await undisturbed.end()


async def test_a_model_that_is_down_leaves_everything_for_the_redelivery(world: World) -> None:
    class Down(ModelThatKeepsEverything):
        async def summarise(self, previous: Any, turns: Any, budget: int) -> tuple[SummaryLine, ...]:
            raise ModelUnavailable("overloaded")

    await world.record(*(a_turn(n) for n in range(4)))
    with pytest.raises(ModelUnavailable):
        await world.summarise(a_turn(3), model=Down())
    assert await world.buffered() == ["t00", "t01", "t02", "t03"]


# --- several workers -------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 5])
async def test_workers_on_one_session_lose_neither_a_turn_nor_a_summary(world: World, workers: int) -> None:
    turns = [a_turn(n) for n in range(12)]
    for start in range(0, 12, workers):
        batch = turns[start : start + workers]
        await world.record(*batch)
        await asyncio.gather(*(world.summarise(turn) for turn in batch))
    covered = world.summaries.covers[SESSION]
    assert [*world.summary, *await world.buffered()] == [turn.turn_id for turn in turns]
    assert set(covered) == set(world.summary), "each turn is in the summary that covers it, once"
    assert (await world.buffer.read(SESSION)).summary == world.summaries.versions[SESSION][-1]


async def test_a_worker_that_always_comes_second_gives_up_and_loses_nothing(world: World) -> None:
    class AlwaysSecond(InMemorySummaries):
        async def commit(
            self,
            summary: Summary,
            turns: Sequence[Turn],
            event_id: uuid.UUID,
            *,
            set_aside: Sequence[str] = (),
        ) -> Summary:
            raise StaleVersion("another worker was first")

    await world.record(*(a_turn(n) for n in range(4)))
    with pytest.raises(StaleVersion):
        await world.summarise(a_turn(3), summaries=AlwaysSecond())
    assert await world.buffered() == ["t00", "t01", "t02", "t03"]


async def test_a_trim_that_was_overtaken_is_made_up_for(world: World) -> None:
    """The other worker commits version 2 and trims before this one, with version 1, gets to trim."""
    await world.record(*(a_turn(n) for n in range(4)))

    class Overtaken:
        def __init__(self, world: World) -> None:
            self.world, self.overtaken = world, False

        def __getattr__(self, name: str) -> Any:
            return getattr(self.world.buffer, name)

        async def trim(self, session: SessionKey, covered: Sequence[str], summary: Summary) -> bool:
            if not self.overtaken:
                self.overtaken = True
                later = summary.model_copy(update={"version": summary.version + 1})
                await self.world.summaries.commit(later, [], TurnRecorded(turn=a_turn(9)).event_id())
                await self.world.buffer.trim(session, [], later)
            return await self.world.buffer.trim(session, covered, summary)

    await world.summarise(a_turn(3), buffer=Overtaken(world))
    assert (world.summary, await world.buffered()) == (["t00", "t01"], ["t02", "t03"])


# --- a buffer that was lost ------------------------------------------------------------------------


async def test_a_recorded_turn_that_the_buffer_lost_is_put_back(world: World) -> None:
    await world.summarise(a_turn(0))
    assert await world.buffered() == ["t00"]


async def test_a_lost_buffer_gets_back_what_no_summary_covers(world: World) -> None:
    turns = [a_turn(n) for n in range(6)]
    for turn in turns[:5]:
        await world.record(turn)
        world.summaries.log.setdefault(SESSION, {})[turn.turn_id] = turn
        await world.summarise(turn)
    world.buffer.lose()
    await world.record(turns[5])
    await world.summarise(turns[5])
    assert world.summary == ["t00", "t01", "t02", "t03"]
    assert await world.buffered() == ["t04", "t05"]


async def test_a_buffer_with_a_cached_summary_still_gets_back_what_it_lost(world: World) -> None:
    """Valkey fails over to a replica that had the first summary, and not the turns after it."""
    turns = [a_turn(n) for n in range(7)]
    for turn in turns[:4]:
        await world.record(turn)
        world.summaries.log.setdefault(SESSION, {})[turn.turn_id] = turn
        await world.summarise(turn)
    replica = copy.deepcopy(world.buffer)
    for turn in turns[4:6]:
        await world.record(turn)
        world.summaries.log[SESSION][turn.turn_id] = turn
        await world.summarise(turn)
    world.buffer = replica
    await world.record(turns[6])
    await world.summarise(turns[6])
    assert [*world.summary, *await world.buffered()] == [turn.turn_id for turn in turns]


async def test_a_late_redelivery_to_a_lost_buffer_does_not_bring_covered_turns_back(world: World) -> None:
    turns = [a_turn(n) for n in range(4)]
    await world.record(*turns)
    await world.summarise(turns[3])
    world.buffer.lose()
    announced = len(world.publisher.published)
    await world.summarise(turns[0])
    assert "t00" not in await world.buffered()
    assert len(world.publisher.published) == announced, "nothing changed, so nothing is announced"


async def test_a_covered_turn_that_came_back_into_a_lost_buffer_is_trimmed_again(world: World) -> None:
    turns = [a_turn(n) for n in range(4)]
    await world.record(*turns)
    await world.summarise(turns[3])
    world.buffer.lose()
    await world.record(turns[0])  # turn-ingest cannot know
    await world.summarise(turns[0])
    assert (await world.buffered(), world.summary) == ([], ["t00", "t01"])
    assert (await world.buffer.read(SESSION)).summary == world.summaries.versions[SESSION][-1]


async def test_a_buffer_that_is_down_is_a_transient_failure(world: World) -> None:
    world.buffer.down = True
    with pytest.raises(DependencyUnavailable):
        await world.summarise(a_turn(0))
