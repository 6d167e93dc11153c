"""Where the parts are: the local stack that runs, or the cloud that the environment names."""

import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from lamina.client import LaminaClient, TurnPublisher
from lamina.errors import ConfigurationError
from lamina.settings import Settings
from lamina_services.local.home import Home, StackState


def running_stack(home: Path) -> StackState | None:
    """The stack that runs under this folder, if one does."""
    state = Home(home).read_state()
    return state if state is not None and state.supervisor.find() else None


def memory_client(home: Path, context_url: str | None, *, timeout_s: float = 60) -> LaminaClient:
    """A client for the context service. ConfigurationError where there is none to ask."""
    url = context_url or Home(home).running().context_url
    if (state := running_stack(home)) and stale(url, state):
        raise ConfigurationError(
            f"LAMINA_CONTEXT_URL: nothing listens at {url}, and the stack under {Home(home).root} is at "
            f'{state.context_url}: eval "$(lamina status --env)" once more'
        )
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"LAMINA_CONTEXT_URL: {url!r} does not begin with http:// or https://")
    return LaminaClient(url, timeout_s=timeout_s)


def stale(url: str, state: StackState) -> bool:
    """Whether a URL of this machine is left over from a stack that ended: another one, and nobody listens."""
    address = urlsplit(url)
    if url.rstrip("/") == state.context_url or address.hostname not in ("127.0.0.1", "localhost"):
        return False
    try:
        with socket.create_connection((address.hostname, address.port or 80), timeout=1):
            return False
    except OSError:
        return True


@dataclass(frozen=True)
class Messaging:
    """Whose topics: a project's, on an emulator where one is named."""

    project: str
    prefix: str
    emulator: str | None
    """`host:port` of the running stack; None leaves it to PUBSUB_EMULATOR_HOST."""


def messaging(home: Path, *, cloud: bool) -> Messaging:
    """The running stack's topics, else those of GOOGLE_CLOUD_PROJECT."""
    settings = Settings.load()
    state = None if cloud else running_stack(home)
    if state is not None:
        return Messaging(state.project, settings.topic_prefix, state.pubsub)
    if not settings.project:
        raise ConfigurationError(
            f"no stack runs under {Home(home).root}, and GOOGLE_CLOUD_PROJECT is not set: "
            "start one with `lamina up`, or set it"
        )
    return Messaging(settings.project, settings.topic_prefix, None)


def turn_publisher(home: Path, *, cloud: bool) -> TurnPublisher:
    """A publisher on the running stack's topics, else on those of GOOGLE_CLOUD_PROJECT."""
    place = messaging(home, cloud=cloud)
    return TurnPublisher.connect(place.project, place.prefix, emulator=place.emulator)


def database_url(home: Path, given: str | None) -> str:
    """The administrator's URL: the given one, else the running stack's."""
    if not given:
        return Home(home).running().database_url
    try:
        conninfo_to_dict(given)
    except ProgrammingError as error:
        raise ConfigurationError(f"LAMINA_DATABASE_URL: {error}") from None
    return given


def environment_of(state: StackState) -> dict[str, str]:
    """What an agent sets to use a local stack."""
    return {
        "PUBSUB_EMULATOR_HOST": state.pubsub,
        "GOOGLE_CLOUD_PROJECT": state.project,
        "LAMINA_CONTEXT_URL": state.context_url,
        "LAMINA_INGEST_URL": state.services["turn-ingest"],
        "LAMINA_VALKEY_URL": state.valkey_url,
        "LAMINA_DATABASE_URL": state.database_url,
    }
