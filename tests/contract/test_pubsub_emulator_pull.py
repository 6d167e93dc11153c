"""Publish, pull, acknowledge, deadlines, retries and seek."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from tests.contract.pubsub_servers import PROJECT, QUIET, World, bodies, seconds, server, world
from tests.contract.pubsub_waiting import eventually

__all__ = ["server", "world"]

pytestmark = QUIET


def test_a_message_arrives_unharmed(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    data = bytes(range(256))
    (identity,) = world.publish(topic, data, key="k", greeting="grüezi ☕")
    (received,) = world.pull(name, 1)
    assert received.message.data == data
    assert received.message.attributes == {"greeting": "grüezi ☕"}
    assert received.message.message_id == identity
    assert received.message.ordering_key == "k"
    assert received.delivery_attempt == 0
    age = datetime.now(UTC) - received.message.publish_time
    assert timedelta(seconds=-5) < age < timedelta(seconds=60)


def test_every_subscription_gets_a_copy(world: World) -> None:
    topic = world.new_topic()
    names = [world.new_subscription(topic) for _ in range(3)]
    world.publish(topic, b"x")
    for name in names:
        world.ack(name, *world.pull(name, 1))


def test_a_subscription_misses_what_was_published_before_it(world: World) -> None:
    topic = world.new_topic()
    world.publish(topic, b"early")
    name = world.new_subscription(topic)
    assert world.drain(name, topic) == []


@pytest.mark.parametrize("kind", ["no data", "only a key"])
def test_an_empty_message_is_refused(world: World, kind: str) -> None:
    messages = {
        "no data": PubsubMessage(),
        "only a key": PubsubMessage(ordering_key="k"),
    }
    with pytest.raises(exceptions.InvalidArgument):
        world.topics.publish(topic=world.new_topic(), messages=[messages[kind]])


def test_a_request_above_ten_million_bytes_is_refused(world: World) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.publish(world.new_topic(), b"x" * 10_000_001)


def test_a_request_of_nearly_ten_million_bytes_is_carried(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"x" * 9_900_000)
    assert len(world.pull(name, 1)[0].message.data) == 9_900_000


def test_a_message_with_attributes_only_is_carried(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"", a="b")
    assert world.pull(name, 1)[0].message.attributes == {"a": "b"}


def test_publishing_to_a_missing_topic_says_not_found(world: World) -> None:
    with pytest.raises(exceptions.NotFound):
        world.publish(f"{PROJECT}/topics/missing", b"x")


def test_the_publisher_of_applications_gets_distinct_ids(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    publisher = world.publisher()
    futures = [publisher.publish(topic, b"%d" % number) for number in range(300)]
    identities = {future.result(10) for future in futures}
    publisher.stop()
    assert len(identities) == 300
    assert {each.message.message_id for each in world.pull(name, 300)} == identities


def test_a_blocking_pull_returns_when_a_message_comes(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    got: list[bytes] = []

    def wait() -> None:
        response = world.subscriptions.pull(subscription=name, max_messages=10, timeout=10)
        got.extend(bodies(response.received_messages))

    waiting = threading.Thread(target=wait)
    waiting.start()
    world.publish(topic, b"x")
    waiting.join(10)
    assert got == [b"x"]


def test_an_immediate_pull_of_nothing_returns_nothing(world: World) -> None:
    assert world.pull_now(world.new_subscription(world.new_topic())) == []


def test_a_pull_gets_no_more_than_it_asks_for(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, *[b"x"] * 20)
    assert len(world.pull_now(name, 7)) <= 7


def test_an_acknowledged_message_stays_away_even_if_nacked_later(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"x")
    received = world.pull(name, 1)
    world.ack(name, *received)
    world.nack(name, *received)
    assert world.drain(name, topic) == []


def test_a_leased_message_is_not_handed_out_twice(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"x")
    world.pull(name, 1)
    assert world.drain(name, topic) == []


def test_a_nacked_message_comes_again_with_the_same_id(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    (identity,) = world.publish(topic, b"x")
    world.nack(name, *world.pull(name, 1))
    assert world.pull(name, 1)[0].message.message_id == identity


def test_a_message_comes_again_after_its_deadline_unless_it_is_extended(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"extended", b"expired")
    received = {each.message.data: each for each in world.pull(name, 2)}
    world.set_deadline(name, 1, *received.values())
    world.set_deadline(name, 60, received[b"extended"])
    assert bodies(world.pull(name, 1)) == [b"expired"]
    assert world.drain(name, topic) == []


def test_an_unknown_ack_id_is_ignored(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"x")
    (received,) = world.pull(name, 1)
    world.nack(name, received)
    (again,) = world.pull(name, 1)
    world.ack(name, received)  # outdated: the lease has ended
    world.nack(name, again)
    assert bodies(world.pull(name, 1)) == [b"x"]


def test_a_retry_policy_delays_each_redelivery_longer(world: World) -> None:
    topic = world.new_topic()
    policy = {"minimum_backoff": seconds(0.5), "maximum_backoff": seconds(10)}
    name = world.new_subscription(topic, retry_policy=policy)
    world.publish(topic, b"x")
    waits: list[float] = []
    (received,) = world.pull(name, 1)
    for _ in range(2):
        nacked = time.monotonic()
        world.nack(name, received)
        (received,) = world.pull(name, 1)
        waits.append(time.monotonic() - nacked)
    assert waits[0] >= 0.4
    assert waits[1] >= waits[0] * 1.2


def test_seeking_into_the_future_drops_the_backlog(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"old", b"older")
    held = world.pull(name, 1)
    world.subscriptions.seek(request={"subscription": name, "time": datetime.now(UTC) + seconds(60)})
    world.nack(name, *held)
    assert world.drain(name, topic) == []


def test_seeking_into_the_past_brings_back_acknowledged_messages(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, retain_acked_messages=True)
    world.publish(topic, b"first")
    (first,) = world.pull(name, 1)
    world.publish(topic, b"second")
    (second,) = world.pull(name, 1)
    world.ack(name, first, second)
    time_of_second = second.message.publish_time
    world.subscriptions.seek(request={"subscription": name, "time": time_of_second})
    again = bodies(world.pull(name, 1))
    assert again == [b"second"]
    assert world.drain(name, topic) == []


def test_ordered_messages_of_a_key_come_in_order(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, enable_message_ordering=True)
    for number in range(10):
        for key in ("a", "b"):
            world.publish(topic, f"{key}{number}".encode(), key=key)
    got: list[bytes] = []

    def all_there() -> bool:
        received = world.pull_now(name)
        got.extend(bodies(received))
        if received:
            world.ack(name, *received)
        return len(got) == 20

    eventually(all_there)
    for key in (b"a", b"b"):
        assert [body for body in got if body[:1] == key] == [b"%s%d" % (key, n) for n in range(10)]


def test_a_nack_brings_back_the_message_and_all_that_follow_with_its_key(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, enable_message_ordering=True)
    world.publish(topic, b"1", b"2", b"3", key="k")
    first, second, third = in_order(world, name, 3)
    world.ack(name, first)
    world.nack(name, second)
    assert bodies(in_order(world, name, 2)) == [b"2", b"3"]
    assert third.message.data == b"3"


def in_order(world: World, name: str, count: int) -> list[ReceivedMessage]:
    """Several messages of one key, which a server may hand out in one batch only."""
    return eventually(lambda: world.pull_now(name, count))
