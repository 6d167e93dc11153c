"""All of a turn's services in one process, as HTTP functions; a test does by hand what Pub/Sub does."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from lamina.client import TurnPublisher
from lamina.events import Payload, TurnPublished, TurnRecorded
from lamina.models.tokens import EstimatedTokens
from lamina.models.usage import OnUsage
from lamina.ports import Embedder, LanguageModel, Message
from lamina.settings import Settings
from lamina.telemetry import ModelUsage, ObservedEmbedder, ObservedModel, counted_turn
from lamina.testing.buffer import InMemoryBuffer
from lamina.testing.clock import StoppedClock
from lamina.testing.entities import InMemoryEntities
from lamina.testing.episodes import InMemoryEpisodes
from lamina.testing.models import HashEmbedder, ScriptedModel
from lamina.testing.publisher import InMemoryPublisher
from lamina.testing.summaries import InMemorySummaries
from lamina.wiring import Dependency
from lamina.worker import Route, Worker
from lamina_services.entity_extractor import handler as entity_extractor_handler
from lamina_services.episodic_embedder import handler as episodic_embedder_handler
from lamina_services.summarizer import handler as summarizer_handler
from lamina_services.turn_ingest.handler import ingest

TURN: dict[str, Any] = {
    "app": "shop",
    "user_id": "ana@example.com",
    "session_id": "s1",
    "turn_id": "t1",
    "occurred_at": "2026-01-05T10:00:00Z",
    "user": "I prefer dark mode",
    "assistant": "Noted.",
}
WORKERS = ("summarizer", "entity-extractor", "episodic-embedder")


@dataclass
class Services:
    """turn-ingest and the three workers on fakes."""

    model: LanguageModel = field(default_factory=ScriptedModel)
    embedder: Embedder = field(default_factory=HashEmbedder)
    usage: OnUsage = field(default_factory=lambda: ModelUsage({}))
    settings: Settings = field(
        default_factory=lambda: Settings.model_construct(summary_trigger_turns=2, summary_keep_turns=1)
    )
    publisher: InMemoryPublisher = field(default_factory=InMemoryPublisher)
    clock: StoppedClock = field(default_factory=StoppedClock)
    fail: Exception | None = None
    """What every handler raises, when set."""

    def __post_init__(self) -> None:
        self.agent = TurnPublisher(self.publisher)
        self.buffer, self.summaries = InMemoryBuffer(), InMemorySummaries()
        self.entities, self.episodes = InMemoryEntities(), InMemoryEpisodes()
        observed, embedder = (
            ObservedModel(self.model, self.usage),
            ObservedEmbedder(self.embedder, self.usage),
        )

        async def take(event: TurnPublished) -> None:
            self._maybe_fail()
            accepted = await ingest(event.turn, buffer=self.buffer, publisher=self.publisher)
            counted_turn(event.turn.app, duplicate=accepted.duplicate)

        async def summarise(event: TurnRecorded) -> None:
            self._maybe_fail()
            await summarizer_handler.on_turn_recorded(
                event,
                buffer=self.buffer,
                summaries=self.summaries,
                model=observed,
                publisher=self.publisher,
                tokens=EstimatedTokens(),
                clock=self.clock,
                settings=self.settings,
            )

        async def extract(event: TurnRecorded) -> None:
            self._maybe_fail()
            await entity_extractor_handler.on_turn_recorded(
                event, entities=self.entities, model=observed, embedder=embedder, publisher=self.publisher
            )

        async def embed(event: TurnRecorded) -> None:
            self._maybe_fail()
            await episodic_embedder_handler.on_turn_recorded(
                event, episodes=self.episodes, embedder=embedder, publisher=self.publisher
            )

        routes = {
            "turn-ingest": Route(TurnPublished, take),
            "summarizer": Route(TurnRecorded, summarise),
            "entity-extractor": Route(TurnRecorded, extract),
            "episodic-embedder": Route(TurnRecorded, embed),
        }
        self._http = {name: client_of(self._worker(name, route)) for name, route in routes.items()}

    def _worker(self, name: str, route: Route) -> Worker:
        return Worker(name, {name: route}, ("database",), lambda: self)

    def _maybe_fail(self) -> None:
        if self.fail:
            raise self.fail

    async def ping(self, dependency: Dependency) -> None:
        """Everything is there."""

    async def push(
        self, subscription: str, message: Message, metadata: Mapping[str, str] | None = None
    ) -> int:
        """One push. Gives the status."""
        headers = {**message.attributes, **(metadata or {})}
        answer = await self._http[subscription].post(
            f"/push/{subscription}", content=message.data, headers=headers
        )
        return answer.status_code

    async def get(self, service: str, path: str) -> httpx.Response:
        """Ask a service."""
        return await self._http[service].get(path)

    def message_of(self, kind: type[Payload]) -> Message:
        """The last message that carried such a payload."""
        pairs = zip(self.publisher.published, self.publisher.messages, strict=True)
        return [message for payload, message in pairs if isinstance(payload, kind)][-1]

    async def journey(self, turn: Mapping[str, Any] = TURN) -> None:
        """A turn from the agent to all three workers."""
        await self.agent.publish(turn)
        assert await self.push("turn-ingest", self.message_of(TurnPublished)) == 204
        for worker in WORKERS:
            assert await self.push(worker, self.message_of(TurnRecorded)) == 204


def client_of(function: Callable[[Request], Awaitable[Response]]) -> httpx.AsyncClient:
    """An HTTP function, ready to be asked."""

    async def endpoint(request: Request) -> Response:
        return await function(request)

    app = Starlette(routes=[HttpRoute("/{path:path}", endpoint, methods=["GET", "POST"])])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
