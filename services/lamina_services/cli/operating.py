"""What a command needs that acts on every place of one deployment: the local stack's, or the cloud's."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from lamina.errors import ConfigurationError
from lamina.postgres.database import Database
from lamina.postgres.forgetting import PostgresForgetting
from lamina.pubsub.clients import publisher_client
from lamina.pubsub.dead_letters import DeadLetters
from lamina.pubsub.publisher import PubSubPublisher
from lamina.settings import Settings
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import valkey_client
from lamina.valkey.sessions import ValkeySessions
from lamina_services.cli.places import Messaging, messaging, running_stack
from lamina_services.forgetting.everywhere import Everywhere
from lamina_services.local.home import Home

STATEMENT_S = 600.0
"""How long one statement about all that a user has may take."""

ValkeyUrl = Annotated[
    str | None,
    typer.Option(
        "--valkey-url",
        envvar="LAMINA_VALKEY_URL",
        help="The buffer's server; without it the running local stack's is used.",
    ),
]
# Variables of their own: one that is set for reading must not narrow what is forgotten or handed out.
OnlySession = Annotated[
    str | None,
    typer.Option("--session", envvar="LAMINA_ONLY_SESSION", help="Only this session of the user's."),
]
OnlyProject = Annotated[
    str | None,
    typer.Option("--project", envvar="LAMINA_ONLY_PROJECT", help="Only the turns that name this project."),
]


@dataclass(frozen=True)
class Stores:
    """The stores of one deployment."""

    settings: Settings
    database: Database
    buffer: ValkeyBuffer
    buffered: ValkeySessions
    topics: Messaging


@asynccontextmanager
async def stores(
    home: Path, database_url: str | None, valkey_url: str | None, *, cloud: bool
) -> AsyncGenerator[Stores]:
    """Connected on first use, and closed in the end."""
    settings = _settings(home, database_url, valkey_url, cloud=cloud)
    topics = messaging(home, cloud=cloud or running_stack(home) is None)
    async with AsyncExitStack() as closing:
        client = valkey_client(settings)
        closing.push_async_callback(client.aclose)
        database = Database.from_settings(settings, timeout_s=STATEMENT_S)
        closing.push_async_callback(database.close)
        yield Stores(
            settings,
            database,
            ValkeyBuffer(client, settings.buffer_ttl_s),
            ValkeySessions(client),
            topics,
        )


@asynccontextmanager
async def everywhere(at: Stores) -> AsyncGenerator[Everywhere]:
    """The same with the queues."""
    topics = at.topics
    publisher = PubSubPublisher(publisher_client(topics.emulator), topics.project, topics.prefix)
    async with AsyncExitStack() as closing:
        closing.push_async_callback(publisher.aclose)
        dead = await closing.enter_async_context(
            DeadLetters.connect(topics.project, topics.prefix, emulator=topics.emulator)
        )
        yield Everywhere(
            PostgresForgetting(at.database),
            at.buffer,
            at.buffered,
            dead,
            publisher,
            at.settings.summary_trigger_turns,
        )


def _settings(home: Path, database_url: str | None, valkey_url: str | None, *, cloud: bool) -> Settings:
    """The environment's, with the addresses that are meant: all of one deployment, never a mixture."""
    settings = Settings.load()
    state = None if cloud else running_stack(home)
    if state is None:
        if not cloud and not (database_url and valkey_url):
            Home(home).running()  # says how to start one
        settings = _with_urls(settings, database_url, valkey_url)
        settings.require("database_url", "valkey_url", "project")
        return settings
    for name, given, own in (
        ("LAMINA_DATABASE_URL", database_url, state.database_url),
        ("LAMINA_VALKEY_URL", valkey_url, state.valkey_url),
    ):
        if given not in (None, own):
            raise ConfigurationError(
                f"{name} is not that of the stack that runs under {Home(home).root}: --cloud goes by the "
                "environment alone, or unset it"
            )
    return _with_urls(settings, state.database_url, state.valkey_url)


def _with_urls(settings: Settings, database_url: str | None, valkey_url: str | None) -> Settings:
    urls = {"database_url": database_url, "valkey_url": valkey_url}
    return settings.model_copy(update={name: SecretStr(url) for name, url in urls.items() if url})
