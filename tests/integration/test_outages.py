"""What people see while a dependency is away, and that all is made up for once it is back."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from lamina.api import ContextResponse
from lamina.client import LaminaClient, TurnPublisher
from lamina.errors import DependencyUnavailable
from lamina.events import TurnRecorded
from lamina.model import Turn
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import connect
from lamina_services.cli.demo.player import ENVIRONMENT
from lamina_services.local.polling import until
from lamina_services.local.stack import Stack

APP = "outages"
TRIGGER, KEEP = 3, 2
"""Of ENVIRONMENT: from three turns on a summary takes over all but two."""
SOON_S = 20
DEADLINE_MS = 1_500
BEGAN = datetime(2026, 4, 1, 9, tzinfo=UTC)


Outage = Callable[["World", str], AbstractAsyncContextManager[None]]


@dataclass
class World:
    """A running stack, and one user's session in it."""

    stack: Stack
    model_down: Path
    user: str

    def turns(self, first: int, last: int) -> list[Turn]:
        return [
            Turn.model_validate(
                {
                    "app": APP,
                    "user_id": self.user,
                    "session_id": "s1",
                    "turn_id": f"t{number}",
                    "occurred_at": BEGAN + timedelta(minutes=number),
                    "user": f"Never restart server {number} at noon.",
                    "assistant": f"Understood, {number} stays up.",
                }
            )
            for number in range(first, last + 1)
        ]

    async def publish(self, turns: Sequence[Turn]) -> None:
        async with TurnPublisher.connect(
            self.stack.state.project, emulator=self.stack.state.pubsub
        ) as publisher:
            for turn in turns:
                await publisher.publish(turn)

    async def post(self, turn: Turn) -> int:
        """The status that turn-ingest answers with."""
        async with httpx.AsyncClient(timeout=SOON_S) as http:
            url = f"{self.stack.state.services['turn-ingest']}/v1/turns"
            return (await http.post(url, json=turn.to_json())).status_code

    async def context(self) -> ContextResponse:
        async with LaminaClient(self.stack.state.context_url, timeout_s=SOON_S) as memory:
            return await memory.context(
                app=APP,
                user_id=self.user,
                session_id="s1",
                query="May I restart a server?",
                deadline_ms=DEADLINE_MS,
            )

    async def degraded(self, what: str) -> ContextResponse:
        """A context that names what is missing. None comes much later than its deadline."""
        answers: list[ContextResponse] = []

        async def named() -> bool:
            async with asyncio.timeout(DEADLINE_MS / 1000 + 1):
                answers.append(await self.context())
            return what in answers[-1].degraded

        await until(named, timeout_s=SOON_S, what=f"a context without {what}")
        return answers[-1]

    async def whole(self) -> ContextResponse:
        """A context that lacks nothing."""
        answers: list[ContextResponse] = []

        async def complete() -> bool:
            try:
                answers.append(await self.context())
            except DependencyUnavailable:
                return False
            return not answers[-1].degraded

        await until(complete, timeout_s=SOON_S, what="a whole context")
        return answers[-1]

    async def through(self, turns: Sequence[Turn]) -> None:
        """Wait until every worker has done its part with these turns, which are all of the session."""
        told = [turn.turn_id for turn in turns]

        async def done() -> bool:
            try:
                covered, stages = await self._stored(turns)
            except (psycopg.OperationalError, DependencyUnavailable):
                return False
            held = [turn.turn_id for turn in await self.buffered()]
            return (
                stages == 2 * len(turns) and sorted([*covered, *held]) == sorted(told) and len(held) <= KEEP
            )

        await until(done, timeout_s=SOON_S, what="the workers", every_s=0.1)

    async def buffered(self) -> tuple[Turn, ...]:
        client = connect(self.stack.state.valkey_url)
        try:
            return (await ValkeyBuffer(client, 60).read(self.turns(1, 1)[0].session)).turns
        finally:
            await client.aclose()

    async def empty_valkey(self) -> None:
        client = connect(self.stack.state.valkey_url)
        await client.flushall()  # pyright: ignore[reportUnknownMemberType] - untyped driver
        await client.aclose()

    async def summary_lines(self) -> list[str]:
        """The text of the latest summary's lines."""
        async with await psycopg.AsyncConnection.connect(self.stack.state.database_url) as db:
            cursor = await db.execute(
                """
                SELECT line ->> 'text'
                FROM (SELECT lines FROM lamina.summaries WHERE user_id = %(u)s
                      ORDER BY version DESC LIMIT 1) AS latest
                CROSS JOIN json_array_elements(latest.lines) AS line
                """,
                {"u": self.user},
            )
            return [text for (text,) in await cursor.fetchall()]

    async def _stored(self, turns: Sequence[Turn]) -> tuple[list[str], int]:
        """The covered turns, and how many stages the turns have been through."""
        async with await psycopg.AsyncConnection.connect(
            self.stack.state.database_url, connect_timeout=2
        ) as db:
            cursor = await db.execute(
                """
                SELECT (SELECT array_agg(turn_id) FROM lamina.summary_turns WHERE user_id = %(u)s),
                       (SELECT count(*) FROM lamina.processed_events
                        WHERE event_id = ANY(%(events)s)
                          AND consumer IN ('entity-extractor', 'episodic-embedder'))
                """,
                {"u": self.user, "events": [TurnRecorded(turn=turn).event_id() for turn in turns]},
            )
            covered, stages = await cursor.fetchone() or (None, 0)
            return covered or [], stages


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[Stack, Path]]:
    folder = tmp_path_factory.mktemp("outages")
    env = {
        **ENVIRONMENT,
        "LAMINA_MODEL": "lamina_services.chaos.model:flaky",
        "LAMINA_EMBEDDER": "lamina_services.chaos.model:flaky_hashes",
        "LAMINA_CHAOS_DOWN": str(folder / "down"),
    }
    async with Stack(folder / "home", env=env, preferred_ports=False) as running:
        yield running, folder / "down"


@pytest.fixture
def world(stack: tuple[Stack, Path]) -> World:
    return World(*stack, user=f"user-{uuid.uuid4()}")


@asynccontextmanager
async def away(world: World, part: str) -> AsyncGenerator[None]:
    """Killed, and not there until the block ends."""
    child = world.stack.child(part)
    await child.kill_and_keep_away()
    try:
        yield
    finally:
        child.let_back()


@asynccontextmanager
async def frozen(world: World, part: str) -> AsyncGenerator[None]:
    """There, and silent until the block ends."""
    identity = world.stack.child(part).identity
    assert identity is not None
    main = psutil.Process(identity.pid)
    processes = [main, *main.children(recursive=True)]
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(processes):
            os.kill(process.pid, signal.SIGCONT)


def said_of(answer: ContextResponse) -> list[str]:
    """The turns of a context that are there word for word."""
    return [turn.turn_id for turn in answer.recent]


async def check_all_remembered(world: World, turns: Sequence[Turn]) -> None:
    """Each turn is through every stage; the summary says each once."""
    await world.through(turns)
    lines = await world.summary_lines()
    assert len(lines) == len(set(lines))
    answer = await world.whole()
    assert sorted(said_of(answer)) == [turn.turn_id for turn in turns[-len(answer.recent) :]]
    for turn in turns:
        number = turn.turn_id[1:]
        assert f"Never restart server {number} at noon." in answer.prompt


async def test_valkey_emptied_in_the_middle_of_a_session_costs_nothing(world: World) -> None:
    before = world.turns(1, 4)
    await world.publish(before)
    await world.through(before)
    held = [turn.turn_id for turn in await world.buffered()]
    await world.empty_valkey()
    answer = await world.context()
    assert sorted(said_of(answer)) == sorted(held), "read back from the log"
    assert answer.summary is not None
    assert not answer.degraded
    everything = world.turns(1, 7)
    await world.publish(everything[4:])
    await check_all_remembered(world, everything)


@pytest.mark.parametrize("outage", [away, frozen])
async def test_while_valkey_is_away_turns_wait_and_the_context_comes_from_the_database(
    world: World, outage: Outage
) -> None:
    before = world.turns(1, 4)
    await world.publish(before)
    await world.through(before)
    held = [turn.turn_id for turn in await world.buffered()]
    everything = world.turns(1, 7)
    async with outage(world, "valkey"):
        answer = await world.degraded("buffer")
        assert sorted(said_of(answer)) == sorted(held)
        assert answer.summary is not None
        assert await world.post(everything[4]) == 503
        await world.publish(everything[5:])
    assert await _posted(world, everything[4])
    await check_all_remembered(world, everything)


async def _posted(world: World, turn: Turn) -> bool:
    async def accepted() -> bool:
        return await world.post(turn) == 200

    await until(accepted, timeout_s=SOON_S, what="turn-ingest")
    return True


@pytest.mark.parametrize("outage", [away, frozen])
async def test_while_postgresql_is_away_the_context_comes_from_valkey(world: World, outage: Outage) -> None:
    before = world.turns(1, 4)
    await world.publish(before)
    await world.through(before)
    everything = world.turns(1, 6)
    async with outage(world, "postgres"):
        assert await world.post(everything[4]) == 200
        await world.publish(everything[5:])
        answer = await world.degraded("memory")
        assert set(said_of(answer)) >= {"t3", "t4", "t5"}
        assert answer.summary is not None, "the one that the buffer caches"
    await check_all_remembered(world, everything)


async def test_while_the_model_is_down_turns_are_stored_and_found_by_their_words(world: World) -> None:
    everything = world.turns(1, 5)
    world.model_down.touch()
    try:
        await world.publish(everything)

        async def stored() -> bool:
            answer = await world.context()
            assert "vectors" in answer.degraded
            return {turn.turn_id for turn in everything} <= set(said_of(answer))

        await until(stored, timeout_s=SOON_S, what="the turns")
        assert await world.summary_lines() == []
    finally:
        world.model_down.unlink()
    await check_all_remembered(world, everything)
