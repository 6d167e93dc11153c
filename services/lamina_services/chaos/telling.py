"""The two ways to tell a story to a stack."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path

from lamina.model import Turn
from lamina_services.chaos.delivery import DUPLICATES, Teller, shuffled
from lamina_services.chaos.faults import Fault, Saboteur, schedule
from lamina_services.chaos.graveyard import Graveyard
from lamina_services.chaos.idle import Watch
from lamina_services.chaos.impatience import impatient
from lamina_services.chaos.memory import remembered
from lamina_services.chaos.plan import Outcome, Plan
from lamina_services.chaos.settling import settle
from lamina_services.chaos.story import Poison, Story, key_of
from lamina_services.local.stack import Stack

Say = Callable[[str], None]
Progress = Callable[[str, float], None]
"""Told what is going on, and the share of it that is done."""


@dataclass(frozen=True)
class Stage:
    """A running stack, and all that a telling needs of it."""

    plan: Plan
    story: Story
    stack: Stack
    teller: Teller
    graveyard: Graveyard
    began: float

    async def settle(self, wave: tuple[Turn, ...], progress: Callable[[float], None]) -> None:
        """Wait until the wave is through every stage, and bring its sessions to the same end."""
        watch = Watch(self.stack, self.graveyard, wave, _parked_by(self.story, wave))
        await watch.until_idle(timeout_s=self.plan.timeout_s, progress=progress)
        await settle(self.stack.state, wave)

    async def outcome(self, faults: Counter[str]) -> Outcome:
        """What is left in the end."""
        # Once more for all: Valkey may have been emptied since the earlier waves were settled.
        await settle(self.stack.state, self.story.turns)
        await self.graveyard.visit()
        return Outcome(
            memory=await remembered(self.stack.state, self.story.turns),
            parked=self.graveyard.parked,
            faults=faults,
            replays=self.graveyard.replays,
            tries=self.teller.tries,
            took_s=time.monotonic() - self.began,
        )


async def calmly(plan: Plan, story: Story, home: Path, progress: Progress) -> Outcome:
    """In order and once: each session's next turn only after every stage has had the one before."""
    async with _stage(plan, story, home) as stage:
        await stage.teller.tell(story.unreadable)
        heard = 0
        for wave in story.waves:
            for together in _one_of_each_session(wave):
                await stage.teller.tell(together)
                watch = Watch(stage.stack, stage.graveyard, together, story.poison)
                await watch.until_through(timeout_s=plan.timeout_s)
                heard += len(together)
                progress("calm", heard / len(story.turns))
            await stage.settle(wave, lambda _: None)
        return await stage.outcome(Counter())


async def under_faults(plan: Plan, story: Story, home: Path, say: Say, progress: Progress) -> Outcome:
    """In any order, some of it twice, while parts are killed and the model fails."""
    tally = home.with_suffix(".tally")
    await asyncio.to_thread(tally.touch)
    faults = list(schedule(plan.seed, plan.faults, plan.every_s))
    async with _stage(plan, story, home, tally) as stage:
        await impatient(stage.stack)
        saboteur = Saboteur(stage.stack, say)
        for number, wave in enumerate(story.waves):
            label = f"wave {number + 1} of {len(story.waves)}"
            everything = shuffled(
                f"{plan.seed} {number}", [*wave, *(story.unreadable if number == 0 else ())]
            )
            share = _share(faults, len(wave), sum(map(len, story.waves[number:])))
            telling = stage.teller.tell(
                everything,
                over_s=sum(fault.pause_s for fault in share),
                progress=lambda done, label=label: progress(f"{label}: telling", done),
            )
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(telling)
                tasks.create_task(saboteur.work(share))
            await stage.settle(
                wave, lambda done, label=label: progress(f"{label}: waiting until all is done", done)
            )
            say(f"{label} is settled")
        done = saboteur.done + await asyncio.to_thread(_failures_of_the_model, tally)
        done["told twice"] = round(len(story.turns) * DUPLICATES)
        return await stage.outcome(done)


@asynccontextmanager
async def _stage(plan: Plan, story: Story, home: Path, tally: Path | None = None) -> AsyncGenerator[Stage]:
    """A stack with a model that fails, and notes it in `tally`, where there is one."""
    began = time.monotonic()
    env = {
        "LAMINA_MODEL": "lamina_services.chaos.model:flaky",
        "LAMINA_EMBEDDER": f"lamina_services.chaos.model:flaky_{plan.vectors}",
        "LAMINA_CHAOS_RATE": str(plan.failing if tally else 0),
        "LAMINA_CHAOS_DEADLY": str(plan.deadly if tally else 0),
        "LAMINA_CHAOS_SEED": str(plan.seed),
        "LAMINA_CHAOS_TALLY": str(tally or ""),
        "LAMINA_TOPIC_PREFIX": "",
        "PUBSUB_EMULATOR_HOST": "",
    }
    async with (
        Stack(home, env=env, preferred_ports=False) as stack,
        Teller(stack.state, plan.seed) as teller,
        Graveyard(stack.state) as graveyard,
    ):
        yield Stage(plan, story, stack, teller, graveyard, began)


def _parked_by(story: Story, wave: tuple[Turn, ...]) -> frozenset[Poison]:
    """The poison that is parked, without settling, once this wave is through."""
    keys = set(map(key_of, wave))
    return frozenset(
        each
        for each in story.poison
        if each.subscription == "turn-ingest"
        or (each.subscription == "entity-extractor" and each.key in keys)
    )


def _one_of_each_session(wave: tuple[Turn, ...]) -> list[list[Turn]]:
    """First each session's first turn, then each one's second, and so on."""
    ordered = sorted(wave, key=lambda turn: (turn.session.digest, turn.order))
    sessions = [list(said) for _, said in groupby(ordered, key=lambda turn: turn.session.digest)]
    return [[turn for turn in row if turn] for row in zip_longest(*sessions)]


def _share(faults: list[Fault], turns: int, left: int) -> list[Fault]:
    """Takes from the faults what falls to so many of the turns that are left."""
    count = round(len(faults) * turns / left)
    taken, faults[:] = faults[:count], faults[count:]
    return taken


def _failures_of_the_model(tally: Path) -> Counter[str]:
    lines = tally.read_text("utf-8").splitlines()
    return Counter("model " + line.partition("\t")[0] for line in lines)
