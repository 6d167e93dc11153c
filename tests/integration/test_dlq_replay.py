"""A dead letter on its whole way: parked by a real worker, replayed, and taken or parked once more."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from lamina.dead_letters import EXHAUSTED
from lamina.errors import ModelRefused
from lamina.events import TurnRecorded
from lamina.ports import Publisher
from lamina.pubsub.clients import publisher_client
from lamina.pubsub.dead_letters import DeadLetters
from lamina.pubsub.letter import DeadLetter
from lamina.pubsub.publisher import PubSubPublisher
from lamina.testing.clock import StoppedClock
from lamina.topology import Topology, load_topology
from lamina.wiring import Dependency
from lamina.worker import Route, Worker
from lamina_services.local.polling import until
from lamina_services.local.pubsub import Emulator
from lamina_services.local.topics import Topics
from tests.builders import a_turn

PROJECT = "replaying"
READERS = ("summarizer", "entity-extractor", "episodic-embedder")


@dataclass
class Parts:
    """What a worker needs of the wiring: Pub/Sub is real."""

    publisher: Publisher
    clock: StoppedClock = field(default_factory=StoppedClock)

    async def ping(self, dependency: Dependency) -> None:
        """Everything is well."""


class Deployment:
    """The three readers of a recorded turn, as real workers behind real pushes."""

    def __init__(self, endpoint: str, topology: Topology) -> None:
        self.endpoint = endpoint
        self.topology = topology
        self.publisher = PubSubPublisher(publisher_client(endpoint), PROJECT)
        self.handled: Counter[str] = Counter()
        self.events: list[TurnRecorded] = []
        self.failing: dict[str, Exception] = {}
        self.crashed: set[str] = set()
        self._workers = {
            name: Worker(name, {name: self._route(name)}, (), lambda: Parts(self.publisher))
            for name in READERS
        }

    def _route(self, name: str) -> Route:
        async def handle(event: TurnRecorded) -> None:
            if error := self.failing.get(name):
                raise error
            self.handled[name] += 1
            self.events.append(event)

        return Route(TurnRecorded, handle)

    async def serve(self, request: Request) -> Response:
        name = request.url.path.removeprefix("/push/")
        if name in self.crashed or name not in self._workers:
            return Response(status_code=500)
        return await self._workers[name](request)

    async def lying(self, count: int = 1) -> list[DeadLetter]:
        """The dead letters, once there are so many."""
        found: list[DeadLetter] = []

        async def enough() -> bool:
            async with self.dead() as dead:
                found[:] = [letter async for letter in dead.scan()]
            return len(found) >= count

        await until(enough, timeout_s=20, what=f"{count} dead letters", every_s=0.05)
        return found

    async def replay_all(self) -> int:
        async with self.dead() as dead:
            return (await dead.replay([letter async for letter in dead.scan()])).done

    def dead(self) -> DeadLetters:
        return DeadLetters.connect(PROJECT, emulator=self.endpoint)

    async def seen(self, **counts: int) -> None:
        """Wait until the readers have handled so many."""
        wanted = {name.replace("_", "-"): count for name, count in counts.items()}

        async def so() -> bool:
            return dict(self.handled) == wanted

        await until(so, timeout_s=20, what=f"{wanted}, not {self.handled}", every_s=0.02)


@asynccontextmanager
async def deployed() -> AsyncGenerator[Deployment]:
    topology = load_topology()
    quick = topology.delivery.model_copy(
        update={"max_delivery_attempts": 5, "minimum_backoff_s": 0.01, "maximum_backoff_s": 0.02}
    )
    topology = topology.model_copy(update={"delivery": quick})
    async with Emulator() as emulator:
        deployment = Deployment(emulator.endpoint, topology)
        app = Starlette(routes=[HttpRoute("/{path:path}", deployment.serve, methods=["POST"])])
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve())

        async def started() -> bool:
            return server.started

        await until(started, timeout_s=10, what="the workers", every_s=0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        topics = Topics(emulator.endpoint, PROJECT, topology)
        await topics.create(dict.fromkeys(topology.services, f"http://127.0.0.1:{port}"))
        try:
            yield deployment
        finally:
            await topics.close()
            await deployment.publisher.aclose()
            server.should_exit = True
            await serving


async def test_a_replay_reaches_the_worker_that_failed_and_no_other() -> None:
    async with deployed() as deployment:
        deployment.failing["summarizer"] = ModelRefused("safety")
        event = TurnRecorded(turn=a_turn("ana"))
        await deployment.publisher.publish(event)
        await deployment.seen(entity_extractor=1, episodic_embedder=1)
        (letter,) = await deployment.lying()
        assert (letter.subscription, letter.event_id) == ("summarizer", str(event.event_id()))

        deployment.failing.clear()
        assert await deployment.replay_all() == 1
        await deployment.seen(summarizer=1, entity_extractor=1, episodic_embedder=1)
        assert all(handled == event for handled in deployment.events)
        async with deployment.dead() as dead:
            assert [letter async for letter in dead.scan()] == []


async def test_one_that_fails_again_comes_back_with_its_count_raised_whoever_gave_up_on_it() -> None:
    async with deployed() as deployment:
        deployment.failing["summarizer"] = ModelRefused("safety")
        event = TurnRecorded(turn=a_turn("ana"))
        await deployment.publisher.publish(event)
        (first,) = await deployment.lying()
        assert (first.failure.error, first.failure.failures) == ("ModelRefused", 1)

        await deployment.replay_all()
        (second,) = await deployment.lying()
        assert (second.failure.failures, second.failure.first_seen) == (2, first.failure.first_seen)
        assert (second.failure.message_id, second.event_id) == (first.failure.message_id, first.event_id)

        deployment.crashed.add("summarizer")  # nobody is there to say why: Pub/Sub moves it by itself
        await deployment.replay_all()
        (third,) = await deployment.lying()
        assert (third.failure.error, third.failure.failures) == (EXHAUSTED, 3)
        assert third.failure.message_id == first.failure.message_id

        deployment.crashed.clear()
        await deployment.replay_all()
        (fourth,) = await deployment.lying()
        assert (fourth.failure.error, fourth.failure.failures) == ("ModelRefused", 4)
        assert fourth.failure.first_seen == first.failure.first_seen


async def test_one_event_that_two_workers_failed_at_goes_back_to_each_of_them_once() -> None:
    async with deployed() as deployment:
        deployment.failing = {name: ModelRefused("safety") for name in READERS[:2]}
        await deployment.publisher.publish(TurnRecorded(turn=a_turn("ana")))
        await deployment.lying(2)
        deployment.failing.clear()
        assert await deployment.replay_all() == 2
        await deployment.seen(summarizer=1, entity_extractor=1, episodic_embedder=1)
