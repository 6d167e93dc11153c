"""Streaming pull, through the subscriber that applications use and through bare streams."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.pubsub_v1.types import ReceivedMessage, StreamingPullRequest

from tests.contract.pubsub_servers import PROJECT, QUIET, World, bodies, server, world
from tests.contract.pubsub_waiting import eventually

__all__ = ["server", "world"]

pytestmark = QUIET


class Stream:
    """A bare stream: what arrives is collected, what is put is sent."""

    def __init__(self, world: World, subscription: str, **first: Any) -> None:
        self.received: list[ReceivedMessage] = []
        self._requests: queue.SimpleQueue[StreamingPullRequest | None] = queue.SimpleQueue()
        self.send(subscription=subscription, stream_ack_deadline_seconds=10, **first)
        self._responses: Any = world.subscriptions.streaming_pull(self._outgoing())
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def send(self, **fields: Any) -> None:
        """Send a request."""
        self._requests.put(StreamingPullRequest(**fields))

    def take(self, count: int) -> list[ReceivedMessage]:
        """The first messages, once there are so many."""
        eventually(lambda: len(self.received) >= count)
        return self.received[:count]

    def close(self) -> None:
        """End the stream."""
        self._requests.put(None)
        self._responses.cancel()
        self._reader.join(10)

    def _outgoing(self) -> Iterator[StreamingPullRequest]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        try:
            for response in self._responses:
                self.received.extend(response.received_messages)
        except exceptions.GoogleAPICallError:
            pass  # how a cancelled stream ends


def test_the_subscriber_of_applications_gets_every_message(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    got: set[bytes] = set()

    def handle(message: Any) -> None:
        got.add(message.data)
        message.ack()

    with world.subscriber() as subscriber:
        future = subscriber.subscribe(name, handle)
        for part in range(5):
            world.publish(topic, *[b"%d" % (part * 100 + number) for number in range(100)])
        eventually(lambda: len(got) == 500, within=10)
        future.cancel()
        future.result(10)


def test_the_subscriber_never_holds_more_than_its_flow_control_allows(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, *[b"x"] * 30)
    stream = Stream(world, name, max_outstanding_messages=4)
    done = 0
    while done < 30:
        eventually(lambda done=done: len(stream.received) > done)
        assert len(stream.received) - done <= 4
        stream.send(ack_ids=[stream.received[done].ack_id])
        done += 1
    stream.close()
    assert len(stream.received) == 30


def test_a_message_nacked_by_its_callback_comes_again(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    seen: list[str] = []

    def handle(message: Any) -> None:
        seen.append(message.message_id)
        if len(seen) < 3:
            message.nack()
        else:
            message.ack()

    with world.subscriber() as subscriber:
        future = subscriber.subscribe(name, handle)
        world.publish(topic, b"x")
        eventually(lambda: len(seen) >= 3)
        future.cancel()
        future.result(10)
    assert len(set(seen)) == 1


def test_ordered_messages_reach_the_callback_in_order_also_after_a_nack(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, enable_message_ordering=True)
    settled: list[bytes] = []
    refused: list[bytes] = []

    def handle(message: Any) -> None:
        if message.data == b"3" and not refused:
            refused.append(message.data)
            message.nack()
            return
        settled.append(message.data)
        message.ack()

    publisher = world.publisher(ordered=True)
    with world.subscriber() as subscriber:
        future = subscriber.subscribe(name, handle)
        for number in range(8):
            publisher.publish(topic, b"%d" % number, ordering_key="k").result(10)
        eventually(lambda: b"7" in settled)
        future.cancel()
        future.result(10)
    publisher.stop()
    last = {body: at for at, body in enumerate(settled)}
    assert sorted(last, key=last.__getitem__) == [b"%d" % number for number in range(8)]


def test_deadlines_can_be_moved_over_the_stream(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"extended", b"expired")
    stream = Stream(world, name)
    ids = {each.message.data: each.ack_id for each in stream.take(2)}
    stream.send(modify_deadline_ack_ids=list(ids.values()), modify_deadline_seconds=[1, 1])
    stream.send(modify_deadline_ack_ids=[ids[b"extended"]], modify_deadline_seconds=[60])
    again = stream.take(3)[2:]
    stream.close()
    assert bodies(again) == [b"expired"]


def test_messages_can_be_acknowledged_over_the_stream(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"x")
    stream = Stream(world, name)
    (received,) = stream.take(1)
    stream.send(ack_ids=[received.ack_id])
    stream.send(modify_deadline_ack_ids=[received.ack_id], modify_deadline_seconds=[0])
    world.publish(topic, b"y")
    assert bodies(stream.take(2)) == [b"x", b"y"]
    stream.close()
    assert len(stream.received) == 2


def test_two_streams_share_the_messages(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    streams = [Stream(world, name, max_outstanding_messages=5) for _ in range(2)]
    world.publish(topic, *[b"%d" % number for number in range(10)])
    eventually(lambda: sum(len(stream.received) for stream in streams) == 10)
    for stream in streams:
        stream.close()
    assert [len(stream.received) for stream in streams] == [5, 5]


@pytest.mark.parametrize("deadline", [5, 601])
def test_a_stream_with_a_bad_deadline_is_refused(world: World, deadline: int) -> None:
    name = world.new_subscription(world.new_topic())
    request = StreamingPullRequest(subscription=name, stream_ack_deadline_seconds=deadline)
    with pytest.raises(exceptions.InvalidArgument):
        list(world.subscriptions.streaming_pull(iter([request])))


def test_a_stream_of_a_missing_subscription_says_not_found(world: World) -> None:
    request = StreamingPullRequest(
        subscription=f"{PROJECT}/subscriptions/missing", stream_ack_deadline_seconds=10
    )
    with pytest.raises(exceptions.NotFound):
        list(world.subscriptions.streaming_pull(iter([request])))
