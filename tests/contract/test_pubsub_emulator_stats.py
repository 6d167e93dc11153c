"""What the emulator tells of a subscription: enough to see that a stage is dead though its process lives."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from hypothesis import given

from lamina_services.local.pubsub.broker import Broker
from lamina_services.local.pubsub.journal import Journal
from lamina_services.local.pubsub.lanes import Consumer, Delivery
from lamina_services.local.pubsub.shapes import new_message, new_subscription, new_topic
from lamina_services.local.pubsub.subscription import Subscription
from tests.contract.test_pubsub_emulator_backlog import ACTIONS, Play

TOPIC, NAME = "projects/p/topics/topic", "projects/p/subscriptions/subscription"
SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000 * SECOND

    def __call__(self) -> int:
        self.now_ns += SECOND
        return self.now_ns


@pytest.fixture
async def broker() -> Broker:
    made = Broker(Journal(), now_ns=Clock())
    made.create_topic(new_topic(name=TOPIC))
    made.create_subscription(new_subscription(name=NAME, topic=TOPIC, ack_deadline_seconds=60))
    return made


@pytest.fixture
async def subscription(broker: Broker) -> Subscription:
    return broker.subscription(NAME)


def lease(subscription: Subscription) -> Iterator[Delivery]:
    while taken := subscription.lease(Consumer(max_messages=1)):
        yield from taken


async def test_an_idle_subscription_has_nothing_old_and_nothing_done(subscription: Subscription) -> None:
    stats = subscription.stats()
    assert (stats.backlog, stats.oldest_published_at, stats.last_acked_at) == (0, None, None)
    assert stats.refused_since_ack == 0


async def test_the_oldest_message_counts_until_it_is_settled_in_flight_or_not(
    broker: Broker, subscription: Subscription
) -> None:
    for _ in range(3):
        broker.publish(TOPIC, [new_message(data=b"x")])
    published = [each.message.published_ns / 1e9 for each in lease(subscription)]
    assert subscription.stats().oldest_published_at == published[0]
    assert subscription.stats().in_flight == 3


async def test_an_acknowledgement_is_remembered_and_ends_a_row_of_refusals(
    broker: Broker, subscription: Subscription
) -> None:
    before = time.time()
    broker.publish(TOPIC, [new_message(data=b"x")])
    for count in (1, 2):
        [delivery] = subscription.lease(Consumer())
        subscription.modify_deadline([delivery.ack_id], 0)
        await asyncio.sleep(0)
        assert subscription.stats().refused_since_ack == count
        assert subscription.stats().last_acked_at is None
    [delivery] = subscription.lease(Consumer())
    subscription.acknowledge([delivery.ack_id])
    stats = subscription.stats()
    assert stats.last_acked_at is not None
    assert before <= stats.last_acked_at <= time.time()
    assert (stats.refused_since_ack, stats.nacked, stats.oldest_published_at) == (0, 2, None)


@given(ACTIONS)
def test_the_oldest_is_the_first_published_of_all_that_is_not_settled(
    actions: list[tuple[str, int]],
) -> None:
    play = Play()
    for action, choice in actions:
        play.do(action, choice)
        gone = {number for _, number in play.settled} | play.removed
        left = [number for _, number in play.added if number not in gone]
        oldest = play.backlog.oldest
        assert (oldest.number if oldest else None) == (left[0] if left else None)
