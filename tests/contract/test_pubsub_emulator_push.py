"""Push: what an endpoint receives, and what its answers mean."""

import threading
import time
from datetime import datetime

import pytest
from google.pubsub_v1.types import PubsubMessage

from tests.contract.pubsub_endpoint import Endpoint, Push, endpoint
from tests.contract.pubsub_servers import QUIET, World, seconds, server, world
from tests.contract.pubsub_waiting import eventually

__all__ = ["endpoint", "server", "world"]

pytestmark = QUIET

BINARY = bytes(range(256))


def unwrapped(endpoint: Endpoint, *, metadata: bool = True) -> dict[str, object]:
    return {"push_endpoint": endpoint.url, "no_wrapper": {"write_metadata": metadata}}


def wrapped(endpoint: Endpoint) -> dict[str, object]:
    return {"push_endpoint": endpoint.url}


def test_a_wrapped_push_is_the_documented_json(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, push_config=wrapped(endpoint))
    (identity,) = world.publish(topic, BINARY, greeting="grüezi ☕")
    (push,) = eventually(lambda: endpoint.pushes)
    assert push.headers["content-type"].startswith("application/json")
    assert push.data == BINARY
    assert push.envelope["subscription"] == name
    message = push.envelope["message"]
    assert message["attributes"] == {"greeting": "grüezi ☕"}
    assert message["messageId"] == message["message_id"] == identity
    assert message["publishTime"] == message["publish_time"]
    assert datetime.fromisoformat(message["publishTime"]).tzinfo is not None
    assert "deliveryAttempt" not in push.envelope


def test_a_wrapped_push_carries_the_ordering_key(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    world.new_subscription(topic, push_config=wrapped(endpoint))
    world.publish(topic, b"x", key="k")
    (push,) = eventually(lambda: endpoint.pushes)
    assert push.envelope["message"]["orderingKey"] == "k"


def test_an_unwrapped_push_carries_binary_data_unharmed(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    world.new_subscription(topic, push_config=unwrapped(endpoint))
    world.publish(topic, BINARY)
    (push,) = eventually(lambda: endpoint.pushes)
    assert push.body == BINARY


def test_an_unwrapped_push_carries_metadata_as_headers(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, push_config=unwrapped(endpoint))
    attributes = {"ce-id": "1", "ce-type": "lamina.turn", "content-type": "application/json", "Plain": "a b"}
    (identity,) = world.publish(topic, b"{}", **attributes)
    (push,) = eventually(lambda: endpoint.pushes)
    assert {name.lower(): value for name, value in attributes.items()}.items() <= push.headers.items()
    assert push.headers["x-goog-pubsub-subscription-name"] == name
    assert push.headers["x-goog-pubsub-message-id"] == identity
    assert datetime.fromisoformat(push.headers["x-goog-pubsub-publish-time"]).tzinfo is not None


def test_an_unwrapped_push_carries_the_ordering_key(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    world.new_subscription(topic, push_config=unwrapped(endpoint))
    world.publish(topic, b"x", key="k")
    (push,) = eventually(lambda: endpoint.pushes)
    assert push.headers["x-goog-pubsub-ordering-key"] == "k"


def test_an_unwrapped_push_without_metadata_is_the_data_alone(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    world.new_subscription(topic, push_config=unwrapped(endpoint, metadata=False))
    world.publish(topic, b"x", note="hidden")
    (push,) = eventually(lambda: endpoint.pushes)
    assert push.body == b"x"
    assert "note" not in push.headers
    assert not [name for name in push.headers if name.startswith("x-goog-pubsub")]


def test_an_attribute_that_no_header_can_hold_does_not_block_its_message(
    world: World, endpoint: Endpoint
) -> None:
    topic = world.new_topic()
    world.new_subscription(topic, push_config=unwrapped(endpoint))
    attributes = {
        "bad name": "x",
        "bad:name": "x",
        "Content-Length": "3",
        "greeting": "grüezi ☕",
        "lines": "a\r\ninjected: b",
    }
    world.topics.publish(topic=topic, messages=[PubsubMessage(data=b"{}", attributes=attributes)])
    (push,) = eventually(lambda: endpoint.pushes, within=2)
    assert push.body == b"{}"
    assert push.headers["greeting"] == "gr%C3%BCezi%20%E2%98%95"
    assert push.headers["lines"] == "a%0D%0Ainjected:%20b"
    assert "injected" not in push.headers


@pytest.mark.parametrize("status", [102, 200, 201, 202, 204])
def test_an_acknowledging_status_settles_the_message(world: World, endpoint: Endpoint, status: int) -> None:
    assert count_pushes(world, endpoint, status) == 1


@pytest.mark.parametrize("status", [203, 302, 400, 404, 500, 503])
def test_any_other_status_brings_the_message_back(world: World, endpoint: Endpoint, status: int) -> None:
    assert count_pushes(world, endpoint, status) == 2


def count_pushes(world: World, endpoint: Endpoint, status: int) -> int:
    """How often a message comes whose first push is answered so, while a refused one comes three times."""
    topic = world.new_topic()
    world.new_subscription(topic, push_config=wrapped(endpoint))

    def times(data: bytes) -> int:
        return len([push for push in list(endpoint.pushes) if push.data == data])

    def answer(push: Push) -> int:
        if push.data == b"reference":
            return 204 if times(b"reference") >= 3 else 500
        return status if times(b"x") == 1 else 204

    endpoint.answer = answer
    world.publish(topic, b"x", b"reference")
    eventually(lambda: times(b"reference") == 3)
    return times(b"x")


def test_a_message_waits_for_an_endpoint_that_does_not_listen_yet(world: World) -> None:
    first = Endpoint()
    port = int(first.url.split(":")[2].split("/")[0])
    first.stop()
    topic = world.new_topic()
    world.new_subscription(topic, push_config=wrapped(first))
    world.publish(topic, b"x")
    late = Endpoint(port)
    eventually(lambda: late.pushes)
    late.stop()
    assert late.pushes[0].data == b"x"


def test_a_retry_policy_delays_pushes(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    policy = {"minimum_backoff": seconds(0.5), "maximum_backoff": seconds(10)}
    world.new_subscription(topic, push_config=wrapped(endpoint), retry_policy=policy)
    moments: list[float] = []

    def answer(_: Push) -> int:
        moments.append(time.monotonic())
        return 500 if len(moments) < 3 else 204

    endpoint.answer = answer
    world.publish(topic, b"x")
    eventually(lambda: len(moments) == 3)
    assert moments[1] - moments[0] >= 0.4
    assert moments[2] - moments[1] >= 0.8


def test_several_pushes_are_in_flight_at_once(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    world.new_subscription(topic, push_config=wrapped(endpoint))
    together = threading.Barrier(8)

    def answer(_: Push) -> int:
        try:
            together.wait(1)
        except threading.BrokenBarrierError:
            return 204
        return 204

    endpoint.answer = answer
    world.publish(topic, *[b"%d" % number for number in range(8)])
    eventually(lambda: len(endpoint.pushes) == 8)
    assert not together.broken


def test_ordered_pushes_of_a_key_never_overlap_and_a_failure_blocks_only_its_key(
    world: World, endpoint: Endpoint
) -> None:
    topic = world.new_topic()
    world.new_subscription(topic, push_config=unwrapped(endpoint), enable_message_ordering=True)
    fail_a = threading.Event()
    fail_a.set()

    def answer(push: Push) -> int:
        return 500 if push.body[:1] == b"a" and fail_a.is_set() else 204

    endpoint.answer = answer
    for number in range(5):
        for key in ("a", "b"):
            world.publish(topic, f"{key}{number}".encode(), key=key)

    def of(key: bytes) -> list[bytes]:
        return [push.body for push in list(endpoint.pushes) if push.body[:1] == key]

    eventually(lambda: len(of(b"b")) == 5)
    assert set(of(b"a")) <= {b"a0"}
    fail_a.clear()
    eventually(lambda: b"a4" in of(b"a"))
    assert of(b"b") == [b"b%d" % number for number in range(5)]
    assert list(dict.fromkeys(of(b"a"))) == [b"a%d" % number for number in range(5)]
    assert of(b"a")[-5:] == [b"a%d" % number for number in range(5)]


def test_the_endpoint_of_a_subscription_can_change(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"before")
    world.subscriptions.modify_push_config(subscription=name, push_config=wrapped(endpoint))
    eventually(lambda: len(endpoint.pushes) == 1)
    other = Endpoint()
    world.subscriptions.modify_push_config(subscription=name, push_config=wrapped(other))
    world.publish(topic, b"after")
    eventually(lambda: other.pushes)
    other.stop()
    assert [push.data for push in endpoint.pushes] == [b"before"]
    assert [push.data for push in other.pushes] == [b"after"]
