"""Dead letters: counted attempts, and the copy that is forwarded."""

from datetime import datetime

from google.pubsub_v1.types import ReceivedMessage

from tests.contract.pubsub_endpoint import Endpoint, Push, endpoint
from tests.contract.pubsub_servers import QUIET, World, bodies, server, world
from tests.contract.pubsub_waiting import eventually

__all__ = ["endpoint", "server", "world"]

pytestmark = QUIET

PREFIX = "CloudPubSubDeadLetterSource"


class Graveyard:
    """A dead-letter topic with a subscription, and the policy that leads there."""

    def __init__(self, world: World) -> None:
        self.topic = world.new_topic()
        self.subscription = world.new_subscription(self.topic)
        self.policy = {"dead_letter_topic": self.topic, "max_delivery_attempts": 5}


def refuse_five_times(world: World, name: str) -> list[ReceivedMessage]:
    attempts: list[ReceivedMessage] = []
    for _ in range(5):
        (received,) = world.pull(name, 1)
        attempts.append(received)
        world.nack(name, received)
    return attempts


def test_a_pulled_message_counts_its_attempts_from_one(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, dead_letter_policy=Graveyard(world).policy)
    world.publish(topic, b"x")
    attempts = refuse_five_times(world, name)
    assert [each.delivery_attempt for each in attempts] == [1, 2, 3, 4, 5]


def test_a_dead_letter_is_a_new_message_that_tells_where_it_came_from(world: World) -> None:
    grave = Graveyard(world)
    topic = world.new_topic()
    name = world.new_subscription(topic, dead_letter_policy=grave.policy)
    world.publish(topic, b"x", key="k", kept="yes")
    original = refuse_five_times(world, name)[0].message
    world.pull_now(name)  # some servers look only when asked
    (dead,) = world.pull(grave.subscription, 1)
    assert dead.message.data == b"x"
    assert dead.message.ordering_key == "k"
    assert dead.message.message_id != original.message_id
    attributes = dict(dead.message.attributes)
    published = datetime.fromisoformat(attributes.pop(f"{PREFIX}TopicPublishTime"))
    assert abs((published - original.publish_time).total_seconds()) < 0.001
    assert attributes == {
        "kept": "yes",
        f"{PREFIX}DeliveryCount": "5",
        f"{PREFIX}Subscription": name.split("/")[-1],
        f"{PREFIX}SubscriptionProject": "contract",
    }
    assert world.drain(name, topic) == []


def test_a_refused_message_is_dead_lettered_without_a_further_pull(world: World) -> None:
    grave = Graveyard(world)
    topic = world.new_topic()
    name = world.new_subscription(topic, dead_letter_policy=grave.policy)
    world.publish(topic, b"x")
    refuse_five_times(world, name)
    assert bodies(world.pull(grave.subscription, 1, within=2)) == [b"x"]


def test_a_refused_push_is_dead_lettered(world: World, endpoint: Endpoint) -> None:
    grave = Graveyard(world)
    topic = world.new_topic()
    config = {"push_endpoint": endpoint.url}
    world.new_subscription(topic, push_config=config, dead_letter_policy=grave.policy)
    endpoint.answer = lambda _: 500
    world.publish(topic, b"x")
    assert bodies(world.pull(grave.subscription, 1, within=10)) == [b"x"]
    assert len(endpoint.pushes) == 5


def test_a_wrapped_push_tells_its_attempt(world: World, endpoint: Endpoint) -> None:
    topic = world.new_topic()
    config = {"push_endpoint": endpoint.url}
    world.new_subscription(topic, push_config=config, dead_letter_policy=Graveyard(world).policy)
    endpoint.answer = lambda _: 500 if len(endpoint.pushes) < 3 else 204
    world.publish(topic, b"x")
    eventually(lambda: len(endpoint.pushes) == 3)
    assert [push.envelope["deliveryAttempt"] for push in endpoint.pushes] == [1, 2, 3]


def test_an_ordering_key_goes_on_after_its_dead_letter(world: World, endpoint: Endpoint) -> None:
    grave = Graveyard(world)
    topic = world.new_topic()
    world.new_subscription(
        topic,
        push_config={"push_endpoint": endpoint.url, "no_wrapper": {"write_metadata": True}},
        dead_letter_policy=grave.policy,
        enable_message_ordering=True,
    )

    def answer(push: Push) -> int:
        return 500 if push.body == b"poison" else 204

    endpoint.answer = answer
    world.publish(topic, b"before", b"poison", b"after", key="k")
    eventually(lambda: endpoint.pushes and endpoint.pushes[-1].body == b"after", within=4)
    assert [push.body for push in endpoint.pushes] == [b"before", *[b"poison"] * 5, b"after"]
    assert bodies(world.pull(grave.subscription, 1)) == [b"poison"]


def test_a_dead_letter_can_be_replayed_to_one_subscriber_by_a_filter(world: World) -> None:
    topic = world.new_topic()

    def only(reader: str) -> str:
        return f'NOT attributes:replay_to OR attributes.replay_to = "{reader}"'

    one, other = (world.new_subscription(topic, filter=only(reader)) for reader in ("one", "other"))
    world.publish(topic, b"for all")
    world.publish(topic, b"again", replay_to="one")
    assert sorted(world.drain(one, topic)) == [b"again", b"for all"]
    assert sorted(body for body in world.drain(other, topic) if body != b"marker") == [b"for all"]
