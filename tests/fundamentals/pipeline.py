"""The whole pipeline in one process: the services' handlers, a real PostgreSQL, and a list for a topic."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest_asyncio

from lamina.api import ContextRequest, ContextResponse
from lamina.client import TurnPublisher
from lamina.events import Payload, TurnPublished, TurnRecorded
from lamina.models.offline import OfflineModel
from lamina.models.tokens import EstimatedTokens
from lamina.postgres.database import Database
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.reader import PostgresReader
from lamina.postgres.summaries import PostgresSummaries
from lamina.settings import Settings
from lamina.testing.buffer import InMemoryBuffer
from lamina.testing.clock import StoppedClock
from lamina.testing.models import HashEmbedder
from lamina.testing.publisher import InMemoryPublisher
from lamina_services.context.handler import build_context
from lamina_services.entity_extractor import handler as entity_extractor_handler
from lamina_services.episodic_embedder import handler as episodic_embedder_handler
from lamina_services.summarizer import handler as summarizer_handler
from lamina_services.turn_ingest.handler import ingest
from tests.fixtures_postgres import TestDatabase


@dataclass
class Pipeline:
    """What Pub/Sub does between the services, done by hand: `deliver` is one push to every subscriber."""

    database: Database
    topic: InMemoryPublisher = field(default_factory=InMemoryPublisher)
    buffer: InMemoryBuffer = field(default_factory=InMemoryBuffer)
    settings: Settings = field(
        default_factory=lambda: Settings(summary_trigger_turns=3, summary_keep_turns=2)
    )

    def __post_init__(self) -> None:
        self.agent = TurnPublisher(self.topic)
        self.model, self.embedder, self.tokens = OfflineModel(), HashEmbedder(), EstimatedTokens()
        self.summaries = PostgresSummaries(self.database)
        self.entities = PostgresEntities(self.database)
        self.episodes = PostgresEpisodes(self.database)
        self.reader = PostgresReader(self.database)

    async def deliver(self, events: Sequence[Payload]) -> None:
        """Push each event to those who subscribe to its topic."""
        for event in events:
            match event:
                case TurnPublished():
                    await ingest(event.turn, buffer=self.buffer, publisher=self.topic)
                case TurnRecorded():
                    await self._summarizer(event)
                    await self._entity_extractor(event)
                    await self._episodic_embedder(event)
                case _:
                    pass

    async def run(self) -> None:
        """Deliver until nobody publishes anything new."""
        delivered = 0
        while delivered < len(self.topic.published):
            waiting = self.topic.published[delivered:]
            delivered = len(self.topic.published)
            await self.deliver(waiting)

    async def context(self, request: ContextRequest) -> ContextResponse:
        return await build_context(
            request,
            buffer=self.buffer,
            reader=self.reader,
            embedder=self.embedder,
            tokens=self.tokens,
            settings=self.settings,
        )

    async def _summarizer(self, event: TurnRecorded) -> None:
        await summarizer_handler.on_turn_recorded(
            event,
            buffer=self.buffer,
            summaries=self.summaries,
            model=self.model,
            publisher=self.topic,
            tokens=self.tokens,
            clock=StoppedClock(),
            settings=self.settings,
        )

    async def _entity_extractor(self, event: TurnRecorded) -> None:
        await entity_extractor_handler.on_turn_recorded(
            event,
            entities=self.entities,
            model=self.model,
            embedder=self.embedder,
            publisher=self.topic,
        )

    async def _episodic_embedder(self, event: TurnRecorded) -> None:
        await episodic_embedder_handler.on_turn_recorded(
            event, episodes=self.episodes, embedder=self.embedder, publisher=self.topic
        )


@pytest_asyncio.fixture(loop_scope="session")
async def pipeline(memory_database: TestDatabase) -> AsyncIterator[Pipeline]:
    database = Database(memory_database.owner)
    yield Pipeline(database)
    await database.close()
