"""Dead letters of a deployment of one's own on a shared emulator, and those who receive a replay."""

import uuid
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest
from google.pubsub_v1 import PubsubMessage

from lamina.dead_letters import Failure, parked
from lamina.envelope import encode
from lamina.errors import DependencyUnavailable
from lamina.events import TurnRecorded
from lamina.ports import Message
from lamina.pubsub.clients import publisher_client, subscriber_client
from lamina.pubsub.dead_letters import EMULATOR, DeadLetters, Patience
from lamina.pubsub.leases import Key, Leases
from lamina.pubsub.letter import DeadLetter
from lamina.pubsub.publisher import PubSubPublisher
from lamina.topology import load_topology
from tests.builders import a_turn
from tests.contract.pubsub_servers import World

PROJECT = "contract"
DEADLINE_S = 10
"""The shortest that Pub/Sub has."""


class Unacknowledging(Leases):
    """As a process that is killed after a publish and before its acknowledgement."""

    async def acknowledge(self, keys: object) -> None:
        raise DependencyUnavailable("pubsub", "cut off")


class Doubling(Leases):
    """As the service may: every message twice."""

    async def pull(self, subscription: str, wait_s: float | None) -> list[PubsubMessage]:
        pulled = await super().pull(subscription, wait_s)
        return [*pulled, *pulled]


class Unpublishing(PubSubPublisher):
    """As a service that is down."""

    async def send(self, topic: str, message: Message) -> str:
        raise DependencyUnavailable("pubsub", f"no {topic} today")


class Yard:
    """Topics and subscriptions under a prefix of its own. A replay is received by pulling."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.prefix = f"y{uuid.uuid4().hex}-"
        self._publisher = PubSubPublisher(publisher_client(world.endpoint), PROJECT, self.prefix)
        topology = load_topology()
        for each in (*topology.topics, *(sub.dead_letter_topic for sub in topology.subscriptions)):
            world.topics.create_topic(name=self.topic(each))
        for sub in topology.subscriptions:
            self._subscribe(sub.dead_letter_topic, sub.dead_letter_topic)
            self._subscribe(sub.name, sub.topic, filter=sub.filter)

    def topic(self, name: str) -> str:
        return f"projects/{PROJECT}/topics/{self.prefix}{name}"

    def subscription(self, name: str) -> str:
        return f"projects/{PROJECT}/subscriptions/{self.prefix}{name}"

    def _subscribe(self, name: str, topic: str, **settings: str) -> None:
        self.world.subscriptions.create_subscription(
            request={
                "name": self.subscription(name),
                "topic": self.topic(topic),
                "ack_deadline_seconds": DEADLINE_S,
                **settings,
            }
        )

    async def bury(
        self,
        number: int = 1,
        *,
        user: str = "ana",
        subscription: str = "summarizer",
        error: str = "ModelRefused",
        reason: str = "blocked",
        message: Message | None = None,
    ) -> Message:
        """Park a message as a worker does. Gives what was parked."""
        failure = Failure(
            error, reason, subscription, parked_at=datetime.now(UTC), message_id=f"first-{number}"
        )
        plain = message or encode(TurnRecorded(turn=a_turn(user, number)))
        await self._publisher.park(subscription, parked(plain, failure))
        return plain

    async def bury_as_pubsub(self, subscription: str, message: Message) -> None:
        """Put a message on the dead-letter topic as it is: no worker says why."""
        await self._publisher.park(subscription, message)

    def dead(self, patience: Patience = EMULATOR, lease_s: int = 60) -> DeadLetters:
        return DeadLetters.connect(
            PROJECT, self.prefix, emulator=self.world.endpoint, patience=patience, lease_s=lease_s
        )

    def dead_with(
        self, leases: type[Leases] = Leases, publisher: type[PubSubPublisher] = PubSubPublisher
    ) -> DeadLetters:
        """With a part that fails."""
        endpoint = self.world.endpoint
        return DeadLetters(
            leases(subscriber_client(endpoint), PROJECT, self.prefix),
            publisher(publisher_client(endpoint), PROJECT, self.prefix),
            patience=EMULATOR,
        )

    async def lying(self) -> list[DeadLetter]:
        """All that can be had now, which is left as it was."""
        async with self.dead() as dead:
            return await scanned(dead)

    def received(self, subscription: str, count: int) -> list[Message]:
        """The next messages that a subscriber gets."""
        name = self.subscription(subscription)
        pulled = self.world.pull(name, count)
        self.world.ack(name, *pulled)
        return [
            Message(each.message.data, dict(each.message.attributes), each.message.ordering_key)
            for each in pulled
        ]

    def received_now(self, subscription: str) -> int:
        """How many there are for a subscriber."""
        return len(self.world.pull_now(self.subscription(subscription)))

    async def aclose(self) -> None:
        await self._publisher.aclose()


async def scanned(dead: DeadLetters, *subscriptions: str) -> list[DeadLetter]:
    """What a scan gives, by the id of the event."""
    return sorted(
        [letter async for letter in dead.scan(subscriptions)],
        key=lambda letter: (letter.event_id, letter.key),
    )


def keys(letters: list[DeadLetter]) -> set[Key]:
    return {letter.key for letter in letters}


@pytest.fixture
async def yard(world: World) -> AsyncGenerator[Yard]:
    """A fresh one."""
    made = Yard(world)
    yield made
    await made.aclose()
