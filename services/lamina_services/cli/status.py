"""`lamina status`: is every part well?"""

import asyncio
import enum
import json as jsonlib
import shlex
from collections.abc import Coroutine
from dataclasses import asdict, dataclass
from typing import Annotated, Any, cast

import httpx
import psycopg
import typer
from redis.exceptions import RedisError
from rich.markup import escape
from rich.table import Table

from lamina.errors import ConfigurationError
from lamina.topology import load_topology
from lamina.valkey.client import connect
from lamina_services.cli.app import command, output
from lamina_services.cli.options import HOME, ContextUrl, Home, Json
from lamina_services.cli.places import environment_of, running_stack, stale
from lamina_services.local.home import Home as HomeFolder
from lamina_services.local.home import StackState
from lamina_services.local.ports import can_connect
from lamina_services.local.stack import check_health

_PATIENCE_S = 5.0

EnvLines = Annotated[
    bool,
    typer.Option(
        "--env",
        envvar="LAMINA_STATUS_ENV",
        help="Print the variables that point an agent at the running stack, passwords included, for eval.",
    ),
]


class Light(enum.StrEnum):
    """How a part is."""

    GREEN = "ok"
    YELLOW = "look"
    RED = "down"


_STYLES = {Light.GREEN: "green", Light.YELLOW: "yellow", Light.RED: "bold red"}


@dataclass(frozen=True)
class Part:
    """One line of the report."""

    name: str
    light: Light
    detail: str


@command
async def status(
    home: Home = HOME, context_url: ContextUrl = None, env: EnvLines = False, json: Json = False
) -> None:
    """Show how each part is: servers, services, what waits in each subscription, and dead letters.

    Fails with exit code 1 while a part is down. With --context-url only that service is asked.
    """
    if env:
        for name, value in environment_of(HomeFolder(home).running()).items():
            output().print(f"export {name}={shlex.quote(value)}", markup=False, soft_wrap=True)
        return
    running = running_stack(home)
    left_over = running is not None and context_url is not None and stale(context_url, running)
    here = left_over or (running is not None and running.context_url == context_url)
    elsewhere = None if here else context_url
    parts = await (_remote(elsewhere) if elsewhere else _local(HomeFolder(home)))
    if json:
        output().print_json(data=[asdict(part) for part in parts])
    else:
        _print(parts)
    if any(part.light is Light.RED for part in parts):
        raise typer.Exit(1)


async def _remote(url: str) -> list[Part]:
    async with httpx.AsyncClient(timeout=_PATIENCE_S) as http:
        return [await _service(http, "context", url.rstrip("/"))]


async def _local(home: HomeFolder) -> list[Part]:
    state = home.running()
    async with httpx.AsyncClient(timeout=_PATIENCE_S) as http:
        servers = asyncio.gather(
            _within("postgres", _postgres(state)),
            _within("valkey", _valkey(state)),
            _within("pubsub", _pubsub(state)),
            *(_service(http, name, url) for name, url in state.services.items()),
        )
        return [*await servers, *_subscriptions(home)]


async def _within(name: str, asking: Coroutine[Any, Any, str]) -> Part:
    try:
        return Part(name, Light.GREEN, await asyncio.wait_for(asking, _PATIENCE_S))
    except TimeoutError:
        return Part(name, Light.RED, f"no answer within {_PATIENCE_S:.0f} s")
    except (psycopg.Error, RedisError, OSError, ConfigurationError) as error:
        return Part(name, Light.RED, " ".join(str(error).split()) or type(error).__name__)


async def _postgres(state: StackState) -> str:
    async with await psycopg.AsyncConnection.connect(state.database_url, connect_timeout=5) as connection:
        cursor = await connection.execute(
            "SELECT current_setting('server_version'), pg_size_pretty(pg_database_size(current_database()))"
        )
        version, size = await cursor.fetchone() or ("?", "?")
    return f"PostgreSQL {version}, {size}"


async def _valkey(state: StackState) -> str:
    client = connect(state.valkey_url)
    try:
        facts = await client.info()  # pyright: ignore[reportUnknownMemberType] - untyped driver
    finally:
        await client.aclose()
    return f"Valkey {facts.get('valkey_version', '?')}, {facts.get('used_memory_human', '?')}"


async def _pubsub(state: StackState) -> str:
    if not await can_connect(state.pubsub):
        raise ConnectionRefusedError(f"nothing listens at {state.pubsub}")
    return f"emulator, project {state.project}"


async def _service(http: httpx.AsyncClient, name: str, url: str) -> Part:
    healthy, said = await check_health(http, url)
    try:
        fields = cast("dict[str, Any]", jsonlib.loads(said))
    except ValueError:
        return Part(name, Light.RED, f"{url}: {said}")
    wrong = [f"{k}: {v}" for k, v in fields.items() if k not in ("service", "healthy") and v != "ok"]
    return Part(name, Light.GREEN if healthy else Light.RED, "; ".join([url, *wrong]))


def _subscriptions(home: HomeFolder) -> list[Part]:
    """What waits, and what was parked."""
    counters = home.subscriptions()
    parts: list[Part] = []
    for subscription in load_topology().subscriptions:
        counts = counters.get(subscription.name, {})
        dead = counters.get(subscription.dead_letter_topic, {}).get("backlog", 0)
        detail = ", ".join(
            f"{counts.get(key, 0)} {word}"
            for key, word in (("backlog", "waiting"), ("acked", "done"), ("nacked", "refused"))
        )
        light = Light.YELLOW if dead else Light.GREEN
        parts.append(
            Part(f"{subscription.topic} → {subscription.name}", light, f"{detail}, {dead} dead letters")
        )
    return parts if counters else []


def _print(parts: list[Part]) -> None:
    table = Table(expand=False)
    for column in ("part", "state", "detail"):
        table.add_column(column, overflow="fold")
    for part in parts:
        table.add_row(part.name, f"[{_STYLES[part.light]}]{part.light}[/]", escape(part.detail))
    output().print(table)
