"""Every service as it is deployed, each a process of its own, on a real Valkey, PostgreSQL and topics."""

# The generated Pub/Sub client leaves its `retry` and `request` arguments untyped.
# pyright: reportUnknownMemberType=false

import base64
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg import sql
from redis import Redis

from lamina.envelope import encode
from lamina.events import TurnRecorded
from lamina.model import Turn
from lamina.postgres.migrate import ROLES
from lamina.topology import load_topology
from tests.contract.pubsub_servers import OwnServer, World
from tests.fixtures_postgres import TestDatabase
from tests.fixtures_valkey import start_valkey

PROJECT = "abuse"
SERVICES = tuple(
    dict.fromkeys(("turn-ingest", "context", *(each.service for each in load_topology().subscriptions)))
)
SUBSCRIPTIONS = {each.name: each.service for each in load_topology().subscriptions}
NO_MODEL_OF_SOMEBODY = ("GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "LAMINA_MODEL", "LAMINA_EMBEDDER")
STARTS_WITHIN_S = 60


@dataclass(frozen=True)
class State:
    """All that is stored anywhere, counted: two equal ones say that nothing was written in between."""

    keys: int
    rows: Mapping[str, int]
    messages: Mapping[str, int]


@dataclass
class Stack:
    """The services' HTTP clients, and a look behind them."""

    http: Mapping[str, httpx.Client]
    ports: Mapping[str, int]
    database_url: str
    valkey: Any
    world: World
    server: OwnServer
    logs: Mapping[str, Path] = field(default_factory=dict[str, Path])

    def state(self) -> State:
        """What is stored now."""
        return State(self.valkey.dbsize(), self.rows(), self.messages())

    def rows(self) -> dict[str, int]:
        """How many rows each table has, whoever they belong to."""
        with psycopg.connect(self.database_url, autocommit=True) as conn:
            names = conn.execute(
                "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'lamina'::regnamespace"
                " AND c.relkind IN ('r', 'p') ORDER BY 1"
            ).fetchall()
            count = sql.SQL("SELECT count(*) FROM lamina.{}")
            return {name: _one(conn, count.format(sql.Identifier(name))) for (name,) in names}

    def messages(self) -> dict[str, int]:
        """How many messages each topic was given and nobody has taken."""
        prefix = f"projects/{PROJECT}/subscriptions/"
        return {name: self.server.stats(f"{prefix}{name}").backlog for name in topic_names()}

    def taken(self, topic: str) -> list[Any]:
        """The messages of a topic that wait now; they are acknowledged."""
        subscription = f"projects/{PROJECT}/subscriptions/{topic}"
        taken: list[Any] = []
        while received := self.world.pull_now(subscription):
            self.world.ack(subscription, *received)
            taken.extend(each.message for each in received)
        return taken

    def post(self, path: str, value: object, **options: Any) -> httpx.Response:
        """POST JSON, ASCII-escaped, to the service that has the path."""
        service = "turn-ingest" if path == "/v1/turns" else "context"
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        content = value if isinstance(value, bytes) else json.dumps(value).encode("ascii")
        return self.http[service].post(path, content=content, headers=headers, **options)

    def push(self, subscription: str, data: bytes, attributes: Mapping[str, str]) -> httpx.Response:
        """Deliver a message as Pub/Sub does, wrapped."""
        message = {"data": base64.b64encode(data).decode(), "attributes": dict(attributes), "messageId": "7"}
        body = {"message": message, "subscription": f"projects/{PROJECT}/subscriptions/{subscription}"}
        return self.http[SUBSCRIPTIONS[subscription]].post(f"/push/{subscription}", json=body)

    def remember(self, turn: Turn) -> None:
        """Bring the turn to everybody who learns from turns; fails where one does not take it."""
        message = encode(TurnRecorded(turn=turn))
        for subscription in ("episodic-embedder", "entity-extractor", "summarizer"):
            answer = self.push(subscription, message.data, message.attributes)
            assert answer.status_code == 204, (subscription, answer.text)
        assert self.parked() == []

    def parked(self) -> list[str]:
        """The reasons of what is parked, which is taken."""
        return [
            f"{name}: {message.attributes.get('lamina-reason')}"
            for name in SUBSCRIPTIONS
            for message in self.taken(f"{name}.dead")
        ]

    def still_serves(self) -> None:
        """A normal exchange works, from the first request to the last."""
        who = {"app": "shop", "user_id": "wellbehaved", "session_id": "s"}
        turn = {**who, "turn_id": "t", "occurred_at": "2026-01-05T10:00:00Z", "user": "I prefer tea."}
        assert self.post("/v1/turns", turn).status_code == 200
        self.remember(Turn.model_validate(turn))
        answer = self.post("/v1/context", {**who, "query": "tea?"})
        assert (answer.status_code, answer.json()["degraded"]) == (200, []), answer.text
        assert "prefer tea" in answer.json()["prompt"]
        for service, client in self.http.items():
            assert client.get("/healthz").status_code == 200, service


def topic_names() -> list[str]:
    """Every topic; each has a subscription of its own name here, that nobody is pushed from."""
    topology = load_topology()
    return [*topology.topics, *(each.dead_letter_topic for each in topology.subscriptions)]


@contextmanager
def running_stack(directory: Path, database: TestDatabase) -> Generator[Stack]:
    """All of it, until the block ends."""
    with ExitStack() as stack:
        valkey = start_valkey(directory / "valkey")
        stack.callback(valkey.stop)
        server = OwnServer()
        stack.callback(server.stop)
        world = World(server.endpoint)
        stack.callback(world.close)
        for name in topic_names():
            topic = world.topics.create_topic(name=f"projects/{PROJECT}/topics/{name}").name
            path = f"projects/{PROJECT}/subscriptions/{name}"
            world.subscriptions.create_subscription(request={"name": path, "topic": topic})
        environment = {
            **{name: value for name, value in os.environ.items() if name not in NO_MODEL_OF_SOMEBODY},
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "PUBSUB_EMULATOR_HOST": server.endpoint,
            "LAMINA_VALKEY_URL": f"valkey://127.0.0.1:{valkey.port}/0",
            "LAMINA_DATABASE_POOL": "3",
            "LAMINA_SUMMARY_TRIGGER_TURNS": "3",
            "LAMINA_SUMMARY_KEEP_TURNS": "2",
            "LAMINA_LOG_LEVEL": "CRITICAL",
        }
        ports: dict[str, int] = {}
        clients: dict[str, httpx.Client] = {}
        logs: dict[str, Path] = {}
        for name in SERVICES:
            role = f"lamina_{name.replace('-', '_')}"
            url = database.service(role) if role in ROLES else ""
            logs[name] = directory / f"{name}.log"
            ports[name] = stack.enter_context(
                _serving(name, {**environment, "LAMINA_DATABASE_URL": url}, logs[name])
            )
            clients[name] = stack.enter_context(
                httpx.Client(base_url=f"http://127.0.0.1:{ports[name]}", timeout=60)
            )
        for name, client in clients.items():
            _wait_until_healthy(client, logs[name])
        redis = Redis(port=valkey.port)
        stack.callback(redis.close)
        yield Stack(clients, ports, database.owner, redis, world, server, logs)


@contextmanager
def _serving(name: str, environment: Mapping[str, str], log: Path) -> Generator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as errors:
        port = listener.getsockname()[1]
        process = subprocess.Popen(  # noqa: S603 - our own module, on a socket of our own
            [sys.executable, "-m", "lamina_services.local.serve", name, str(listener.fileno())],
            env=environment,
            pass_fds=[listener.fileno()],
            stderr=errors,
        )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(15)


def _wait_until_healthy(client: httpx.Client, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            answer = client.get("/healthz")
            if answer.status_code == 200:
                return
            last = answer.text
        except httpx.TransportError as error:
            last = str(error)
        assert time.monotonic() < deadline, (last, log.read_text()[-2000:])
        time.sleep(0.05)


def _one(conn: psycopg.Connection[Any], query: sql.Composed) -> int:
    row = conn.execute(query).fetchone()
    assert row is not None
    return row[0]
