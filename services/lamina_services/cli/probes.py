"""Asks the parts: the servers and services of a local stack, or what the cloud says of them."""

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import httpx
import psycopg
from redis.exceptions import RedisError

from lamina.deadline import answer_of
from lamina.errors import ConfigurationError, DependencyUnavailable, LaminaError
from lamina.postgres.database import Database
from lamina.postgres.vitals import LetterCount, PostgresVitals, StageLag
from lamina.settings import Settings
from lamina.topology import load_topology
from lamina.valkey.client import connect
from lamina_services.cli import vitals
from lamina_services.cli.monitoring import CloudMonitoring
from lamina_services.cli.vitals import Light, Part, Queue
from lamina_services.local.home import Home, StackState
from lamina_services.local.ports import can_connect
from lamina_services.local.stack import check_health

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long a part may take to answer."""
LOG_PATIENCE_S = 30.0
"""How long the cloud's database may take over the turns of a week: 2 s for 200,000 of them, measured."""
REPORT_LATE_S = 5.0
"""The emulator writes its report every second: one that is older was written by a process that hangs."""


@dataclass(frozen=True)
class Log:
    """What the database says of all users' turns together."""

    lag: Sequence[StageLag] = ()
    letters: Sequence[LetterCount] = ()


async def local_parts(home: Home, stalled_s: float) -> list[Part]:
    """Every part of the stack that runs. ConfigurationError where none does."""
    state = home.running()
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        *servers, log = await asyncio.gather(
            _within("postgres", _postgres(state)),
            _within("valkey", _valkey(state)),
            _within("pubsub", _pubsub(state, home)),
            *(_service(http, name, url) for name, url in state.services.items()),
            _log(state.database_url, PATIENCE_S),
        )
    parts = cast("list[Part]", servers)
    fresh = all(part.light is Light.GREEN for part in parts if part.name == "pubsub")
    report = home.report() if fresh else {}
    counters: Mapping[str, Any] = report.get("subscriptions", {})
    queues = {name: Queue.of_report(each, report["began_at"]) for name, each in counters.items()}
    return [*parts, *_stages(queues, *cast("tuple[Log, Part | None]", log), stalled_s)]


async def cloud_parts(
    context_url: str | None, database_url: str | None, monitoring_url: str, stalled_s: float
) -> list[Part]:
    """What Cloud Monitoring says of the project's subscriptions, and of the rest as far as it is named."""
    settings = Settings.load()
    settings.require("project")
    parts: list[Part] = []
    queues: dict[str, Queue] = {}
    async with httpx.AsyncClient(timeout=PATIENCE_S * 4) as http:
        if context_url:
            parts.append(await _service(http, "context", context_url.rstrip("/")))
        try:
            found = await CloudMonitoring(http, settings.project, monitoring_url).queues(datetime.now(UTC))
            queues = {name.removeprefix(settings.topic_prefix): queue for name, queue in found.items()}
        except LaminaError as error:
            parts.append(Part("monitoring", Light.RED, str(error)))
    log, trouble = await _log(database_url, LOG_PATIENCE_S) if database_url else (Log(), None)
    return [*parts, *_stages(queues, log, trouble, stalled_s)]


async def service_part(name: str, url: str) -> Part:
    """One service, by what it says of itself."""
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        return await _service(http, name, url.rstrip("/"))


def _stages(queues: Mapping[str, Queue], log: Log, trouble: Part | None, stalled_s: float) -> list[Part]:
    """A line for each stage, and one for what is amiss with it: from the queues, and from the log."""
    topology, now = load_topology(), datetime.now(UTC)
    lags = {lag.subscription: lag for lag in log.lag}
    parts = [trouble] if trouble else []
    for subscription in topology.subscriptions:
        queue = queues.get(subscription.name)
        parts.append(vitals.stage(subscription, queue, now.timestamp(), stalled_s))
        dead = queues.get(subscription.dead_letter_topic)
        more = [
            vitals.unprocessed(lags[subscription.name], queue, now, stalled_s)
            if subscription.name in lags
            else None,
            vitals.letters(subscription, dead.waiting if dead else None, log.letters, now),
        ]
        parts.extend(part for part in more if part)
    recordings = [queues[each.name] for each in topology.recordings if each.name in queues]
    recorder = vitals.together(recordings) if recordings else None
    parts.append(vitals.recorder(topology.recordings[0], recorder, now.timestamp(), stalled_s))
    return parts


async def _log(database_url: str, patience_s: float) -> tuple[Log, Part | None]:
    """The log's own account, or what keeps it from giving one."""
    try:
        return await answer_of("database", _ask(database_url, patience_s), 2 * patience_s), None
    except DependencyUnavailable as error:
        return Log(), Part("log", Light.RED, str(error))
    except LaminaError as error:
        return Log(), Part("log", Light.UNKNOWN, f"{error} (its login must be a member of lamina_operator)")


async def _ask(database_url: str, patience_s: float) -> Log:
    kept = timedelta(days=load_topology().delivery.retention_days)  # Pub/Sub lets go of what is older
    since = datetime.now(UTC) - kept
    database = Database(database_url, size=1, timeout_s=patience_s)
    try:
        asking = PostgresVitals(database)
        lag = await asking.lag(since, Settings.load().summary_trigger_turns)
        return Log(lag, await asking.letters(since))
    finally:
        await database.close()


async def _within(name: str, asking: Coroutine[Any, Any, str]) -> Part:
    try:
        return Part(name, Light.GREEN, await asyncio.wait_for(asking, PATIENCE_S))
    except TimeoutError:
        return Part(name, Light.RED, f"no answer within {PATIENCE_S:.0f} s")
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


async def _pubsub(state: StackState, home: Home) -> str:
    if not await can_connect(state.pubsub):
        raise ConnectionRefusedError(f"nothing listens at {state.pubsub}")
    late = time.time() - home.report().get("written_at", 0.0)
    if late > REPORT_LATE_S:  # a frozen process still accepts connections
        raise ConnectionError(f"no sign of life for {vitals.span(late)}")
    return f"emulator, project {state.project}"


async def _service(http: httpx.AsyncClient, name: str, url: str) -> Part:
    healthy, said = await check_health(http, url)
    try:
        fields = cast("dict[str, Any]", json.loads(said))
    except ValueError:
        return Part(name, Light.RED, f"{url}: {said}")
    wrong = [f"{k}: {v}" for k, v in fields.items() if k not in ("service", "healthy") and v != "ok"]
    return Part(name, Light.GREEN if healthy else Light.RED, "; ".join([url, *wrong]))
