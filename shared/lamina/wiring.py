"""The only module that builds clients: lazily, once a process, never at import.

Each member imports its driver when it is first used, so that a service pays only for what it needs.
"""

from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from lamina.errors import ConfigurationError
from lamina.ports import (
    Buffer,
    Clock,
    CompactionStore,
    DeadLetterIndex,
    Embedder,
    EntityStore,
    EpisodeStore,
    LanguageModel,
    MemoryReader,
    Publisher,
    ReceiptReader,
    SummaryStore,
    TokenCounter,
)
from lamina.settings import Settings, load_settings
from lamina.telemetry import ModelUsage, ObservedEmbedder, ObservedModel

if TYPE_CHECKING:
    from google.genai import Client

    from lamina.postgres.database import Database


Dependency = Literal["valkey", "database", "pubsub"]


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The current moment, in UTC."""
        return datetime.now(UTC)


class Wiring:
    """Adapters for the ports, as the settings say."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock()

    @cached_property
    def buffer(self) -> Buffer:
        """The buffer on Valkey."""
        from lamina.valkey.buffer import ValkeyBuffer
        from lamina.valkey.client import valkey_client

        self.settings.require("valkey_url")
        return ValkeyBuffer(valkey_client(self.settings), self.settings.buffer_ttl_s)

    @cached_property
    def database(self) -> "Database":
        """The pool of connections to AlloyDB."""
        from lamina.postgres.database import Database

        self.settings.require("database_url")
        return Database.from_settings(self.settings)

    @cached_property
    def summaries(self) -> SummaryStore:
        """Summaries on AlloyDB."""
        from lamina.postgres.summaries import PostgresSummaries

        return PostgresSummaries(self.database)

    @cached_property
    def entities(self) -> EntityStore:
        """Statements and entities on AlloyDB."""
        from lamina.postgres.entities import PostgresEntities

        return PostgresEntities(self.database)

    @cached_property
    def episodes(self) -> EpisodeStore:
        """The turn log and its episodes on AlloyDB."""
        from lamina.postgres.episodes import PostgresEpisodes

        return PostgresEpisodes(self.database)

    @cached_property
    def compactions(self) -> CompactionStore:
        """Compactions on AlloyDB."""
        from lamina.postgres.compactions import PostgresCompactions

        return PostgresCompactions(self.database, self.settings)

    @cached_property
    def reader(self) -> MemoryReader:
        """Read-only recall on AlloyDB."""
        from lamina.postgres.reader import PostgresReader

        return PostgresReader(self.database, self.clock)

    @cached_property
    def receipts(self) -> ReceiptReader:
        """Traces of single turns on AlloyDB."""
        from lamina.postgres.receipts import PostgresReceipts

        return PostgresReceipts(self.database)

    @cached_property
    def dead_letters(self) -> DeadLetterIndex:
        """The index of dead letters on AlloyDB."""
        from lamina.postgres.dead_letters import PostgresDeadLetterIndex

        return PostgresDeadLetterIndex(self.database)

    @cached_property
    def publisher(self) -> Publisher:
        """The topics."""
        from lamina.pubsub.clients import publisher_client
        from lamina.pubsub.publisher import PubSubPublisher

        self.settings.require("project")
        return PubSubPublisher(publisher_client(), self.settings.project, self.settings.topic_prefix)

    async def ping(self, dependency: Dependency) -> None:
        """Raise DependencyUnavailable unless it answers."""
        match dependency:
            case "valkey":
                await self.buffer.ping()
            case "database":
                await self.database.ping()
            case "pubsub":
                await self.publisher.ping()

    @cached_property
    def gemini(self) -> "Client":
        """The client of google-genai."""
        from lamina.models.gemini.client import gemini_client

        return gemini_client(self.settings)

    @cached_property
    def usage(self) -> ModelUsage:
        """Counts what calls to models cost."""
        return ModelUsage(self.settings.model_prices)

    @cached_property
    def model(self) -> LanguageModel:
        """Gemini, the offline model, or one of the deployment's own."""
        match self.settings.model_used:
            case "gemini":
                from lamina.models.gemini.model import GeminiModel

                model = GeminiModel(self.gemini, self.settings, on_usage=self.usage)
                return ObservedModel(model)
            case "offline":
                from lamina.models.offline import OfflineModel

                return ObservedModel(OfflineModel(), self.usage)
            case name:
                return ObservedModel(named("LAMINA_MODEL", name)(self.settings), self.usage)

    @cached_property
    def embedder(self) -> Embedder:
        """Gemini's embeddings, MiniLM in this process, or the deployment's own."""
        match self.settings.embedder_used:
            case "gemini":
                from lamina.models.gemini.embedder import GeminiEmbedder

                embedder = GeminiEmbedder(self.gemini, self.settings, on_usage=self.usage)
                return ObservedEmbedder(embedder)
            case "offline":
                from lamina.models.minilm import MiniLmEmbedder

                return ObservedEmbedder(MiniLmEmbedder(), self.usage)
            case name:
                return ObservedEmbedder(named("LAMINA_EMBEDDER", name)(self.settings), self.usage)

    @cached_property
    def tokens(self) -> TokenCounter:
        """Counts tokens by estimate, without a model call."""
        from lamina.models.tokens import EstimatedTokens

        return EstimatedTokens()


def named(variable: str, name: str) -> Any:
    """What `package.module:name` names. ConfigurationError where there is no such thing."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{variable}: {name!r} cannot be imported: {error}") from error


@cache
def wiring() -> Wiring:
    """This process's wiring."""
    return Wiring(load_settings())
