"""Fixtures of the Pub/Sub contract: the servers that must keep it, and the official clients to ask them."""

import asyncio
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import google.pubsub_v1
import grpc
import pytest
from google.cloud.pubsub_v1 import (  # pyright: ignore[reportMissingTypeStubs] - typed, but not marked so
    PublisherClient,
    SubscriberClient,
)
from google.cloud.pubsub_v1.types import (  # pyright: ignore[reportMissingTypeStubs] - typed, but not marked so
    PublisherOptions,
)
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from lamina_services.local.pubsub import Emulator, SubscriptionStats
from tests.contract.pubsub_java import DEVIATIONS, JAR_VARIABLE, JavaServer, java_emulator_jar
from tests.contract.pubsub_waiting import eventually

PROJECT = "projects/contract"

QUIET = pytest.mark.filterwarnings("ignore:The return_immediately flag is deprecated")
"""Pulling what is there now is deprecated for applications; a test has good use for it."""


class Server(Protocol):
    """A running emulator."""

    kind: str
    endpoint: str

    def stop(self) -> None: ...


class OwnServer:
    """Our emulator on a loop in a thread of its own."""

    kind = "lamina"

    def __init__(self, port: int = 0, state_file: Path | None = None) -> None:
        self._emulator = Emulator(port, state_file)
        started: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)))
        self._thread.start()
        self.endpoint = started.result(10)

    def stats(self, subscription: str) -> SubscriptionStats:
        """The counters of one subscription."""
        return self._emulator.stats()[subscription]

    def stop(self) -> None:
        """Stop the emulator; fails when it leaves tasks behind."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        assert self.left_behind == []

    async def _run(self, started: "Future[str]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        async with self._emulator:
            started.set_result(self._emulator.endpoint)
            await self._stopping.wait()
        self.left_behind = [str(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]


class World:
    """The official clients of one server, and short ways to say what tests say often."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._channel = self._connect()
        self.topics: Any = google.pubsub_v1.PublisherClient(
            transport=PublisherGrpcTransport(channel=self._channel)
        )
        self.subscriptions: Any = google.pubsub_v1.SubscriberClient(
            transport=SubscriberGrpcTransport(channel=self._channel)
        )

    def _connect(self) -> grpc.Channel:
        return grpc.insecure_channel(self.endpoint, [("grpc.max_receive_message_length", -1)])

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def publisher(self, *, ordered: bool = False) -> Any:
        """The publisher that applications use, on a connection of its own."""
        return PublisherClient(
            publisher_options=PublisherOptions(enable_message_ordering=ordered),
            transport=PublisherGrpcTransport(channel=self._connect()),
        )

    def subscriber(self) -> Any:
        """The streaming subscriber that applications use, on a connection of its own, which it closes."""
        return SubscriberClient(transport=SubscriberGrpcTransport(channel=self._connect()))

    def new_topic(self) -> str:
        """A fresh topic."""
        return self.topics.create_topic(name=f"{PROJECT}/topics/t-{uuid.uuid4().hex}").name

    def new_subscription(self, topic: str, **settings: Any) -> str:
        """A fresh subscription with the given fields."""
        name = f"{PROJECT}/subscriptions/s-{uuid.uuid4().hex}"
        self.subscriptions.create_subscription(request={"name": name, "topic": topic, **settings})
        return name

    def publish(self, topic: str, *bodies: bytes, key: str = "", **attributes: str) -> Sequence[str]:
        """Publish one message for each body and return the ids."""
        messages = [PubsubMessage(data=body, ordering_key=key, attributes=attributes) for body in bodies]
        return self.topics.publish(topic=topic, messages=messages).message_ids

    def pull_now(self, subscription: str, limit: int = 100) -> list[ReceivedMessage]:
        """What is there now."""
        request = {"subscription": subscription, "max_messages": limit, "return_immediately": True}
        return list(self.subscriptions.pull(request=request, timeout=10).received_messages)

    def pull(self, subscription: str, count: int, within: float = 5.0) -> list[ReceivedMessage]:
        """The next messages, as many as asked for."""
        got: list[ReceivedMessage] = []

        def enough() -> bool:
            got.extend(self.pull_now(subscription, count - len(got)))
            return len(got) >= count

        eventually(enough, within)
        return got

    def ack(self, subscription: str, *received: ReceivedMessage) -> None:
        """Acknowledge messages."""
        self.subscriptions.acknowledge(subscription=subscription, ack_ids=[each.ack_id for each in received])

    def set_deadline(self, subscription: str, seconds: int, *received: ReceivedMessage) -> None:
        """Move the deadline of messages; 0 is a nack."""
        self.subscriptions.modify_ack_deadline(
            subscription=subscription,
            ack_ids=[each.ack_id for each in received],
            ack_deadline_seconds=seconds,
        )

    def nack(self, subscription: str, *received: ReceivedMessage) -> None:
        """Refuse messages."""
        self.set_deadline(subscription, 0, *received)

    def drain(self, subscription: str, marker_topic: str) -> list[bytes]:
        """Everything that is there, up to a marker that this publishes; all of it is acknowledged."""
        self.publish(marker_topic, b"marker")
        bodies: list[bytes] = []

        def marked() -> bool:
            for each in self.pull_now(subscription):
                bodies.append(each.message.data)
                self.ack(subscription, each)
            return b"marker" in bodies

        eventually(marked)
        bodies.remove(b"marker")
        return bodies


def bodies(received: Sequence[ReceivedMessage]) -> list[bytes]:
    """The data of each message."""
    return [each.message.data for each in received]


def seconds(value: float) -> timedelta:
    """A duration as the client library takes it."""
    return timedelta(seconds=value)


@pytest.fixture(scope="module", params=["lamina", "java"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Every emulator that must keep the contract, in turn."""
    if request.param == "lamina":
        running: Server = OwnServer()
    else:
        jar = java_emulator_jar()
        if jar is None:
            pytest.skip(f"no Java Pub/Sub emulator: neither {JAR_VARIABLE} nor an SDK with it, or no java")
        running = JavaServer(jar)
    yield running
    running.stop()


@pytest.fixture
def world(server: Server, request: pytest.FixtureRequest) -> Iterator[World]:
    """Clients of the server; known deviations of the Java emulator become strict expected failures."""
    name = request.node.name.removesuffix(f"[{server.kind}]").replace(f"[{server.kind}-", "[")
    reason = DEVIATIONS.get(name)
    if server.kind == "java" and reason:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    clients = World(server.endpoint)
    yield clients
    clients.close()
