"""Topics and subscriptions: names, settings, updates and refusals."""

from typing import Any

import pytest
from google.api_core import exceptions
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1.types import DeadLetterPolicy, Subscription, Topic

from tests.contract.pubsub_servers import PROJECT, QUIET, World, seconds, server, world

__all__ = ["server", "world"]

pytestmark = QUIET


def subscription_with(path: str, value: Any) -> Any:
    fields: dict[str, Any] = {path: value}
    return Subscription(fields)


def update(world: World, name: str, *paths: str, **fields: Any) -> Subscription:
    subscription = Subscription(name=name, **fields)
    return world.subscriptions.update_subscription(
        subscription=subscription, update_mask=FieldMask(paths=paths)
    )


def test_a_topic_can_be_read_listed_and_deleted(world: World) -> None:
    topic = world.new_topic()
    assert world.topics.get_topic(topic=topic).name == topic
    assert topic in [each.name for each in world.topics.list_topics(project=PROJECT)]
    world.topics.delete_topic(topic=topic)
    with pytest.raises(exceptions.NotFound):
        world.topics.get_topic(topic=topic)


def test_topics_are_listed_page_by_page(world: World) -> None:
    created = {world.new_topic() for _ in range(5)}
    pages = list(world.topics.list_topics(request={"project": PROJECT, "page_size": 2}).pages)
    assert len(pages) >= 3
    listed = [topic.name for page in pages for topic in page.topics]
    assert len(listed) == len(set(listed))
    assert created <= set(listed)


def test_a_topic_name_can_be_taken_once(world: World) -> None:
    topic = world.new_topic()
    with pytest.raises(exceptions.AlreadyExists):
        world.topics.create_topic(name=topic)


@pytest.mark.parametrize("identifier", ["ab", "1abc", "googabc", "a b c", "x" * 256])
def test_a_topic_name_that_breaks_the_rules_is_refused(world: World, identifier: str) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.topics.create_topic(name=f"{PROJECT}/topics/{identifier}")


def test_the_labels_of_a_topic_can_be_updated(world: World) -> None:
    topic = world.new_topic()
    wanted = Topic(name=topic, labels={"team": "memory"})
    world.topics.update_topic(topic=wanted, update_mask=FieldMask(paths=["labels"]))
    assert world.topics.get_topic(topic=topic).labels == {"team": "memory"}


def test_a_topic_names_its_subscriptions(world: World) -> None:
    topic = world.new_topic()
    names = [world.new_subscription(topic) for _ in range(2)]
    assert sorted(world.topics.list_topic_subscriptions(topic=topic)) == sorted(names)


def test_a_subscription_outlives_its_topic(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"kept")
    world.topics.delete_topic(topic=topic)
    assert world.subscriptions.get_subscription(subscription=name).topic == "_deleted-topic_"
    assert [each.message.data for each in world.pull(name, 1)] == [b"kept"]


def test_a_subscription_comes_with_the_documented_defaults(world: World) -> None:
    name = world.new_subscription(world.new_topic())
    subscription = world.subscriptions.get_subscription(subscription=name)
    assert subscription.ack_deadline_seconds == 10
    assert subscription.message_retention_duration == seconds(7 * 86_400)
    assert "retry_policy" not in subscription


def test_a_subscription_can_be_listed_and_deleted(world: World) -> None:
    name = world.new_subscription(world.new_topic())
    assert name in [each.name for each in world.subscriptions.list_subscriptions(project=PROJECT)]
    world.subscriptions.delete_subscription(subscription=name)
    with pytest.raises(exceptions.NotFound):
        world.pull_now(name)


def test_a_subscription_name_can_be_taken_once(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    with pytest.raises(exceptions.AlreadyExists):
        world.subscriptions.create_subscription(name=name, topic=topic)


def test_a_subscription_needs_an_existing_topic(world: World) -> None:
    with pytest.raises(exceptions.NotFound):
        world.new_subscription(f"{PROJECT}/topics/missing")


def test_a_dead_letter_topic_must_exist(world: World) -> None:
    policy = {"dead_letter_topic": f"{PROJECT}/topics/missing", "max_delivery_attempts": 5}
    with pytest.raises(exceptions.NotFound):
        world.new_subscription(world.new_topic(), dead_letter_policy=policy)


@pytest.mark.parametrize("attempts", [1, 4, 101])
def test_delivery_attempts_outside_5_to_100_are_refused(world: World, attempts: int) -> None:
    topic = world.new_topic()
    policy = {"dead_letter_topic": topic, "max_delivery_attempts": attempts}
    with pytest.raises(exceptions.BadRequest):
        world.new_subscription(topic, dead_letter_policy=policy)


@pytest.mark.parametrize("deadline", [5, 601])
def test_an_ack_deadline_outside_10_to_600_seconds_is_refused(world: World, deadline: int) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.new_subscription(world.new_topic(), ack_deadline_seconds=deadline)


def test_a_backoff_above_600_seconds_is_refused(world: World) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.new_subscription(world.new_topic(), retry_policy={"maximum_backoff": seconds(601)})


def test_a_minimum_backoff_above_the_maximum_is_refused(world: World) -> None:
    policy = {"minimum_backoff": seconds(20), "maximum_backoff": seconds(10)}
    with pytest.raises(exceptions.InvalidArgument):
        world.new_subscription(world.new_topic(), retry_policy=policy)


@pytest.mark.parametrize("text", ["attributes.a", 'attributes.a = "b" AND', "data:x", 'attributes.a < "b"'])
def test_a_malformed_filter_is_refused(world: World, text: str) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.new_subscription(world.new_topic(), filter=text)


def test_a_filter_above_256_bytes_is_refused(world: World) -> None:
    with pytest.raises(exceptions.InvalidArgument):
        world.new_subscription(world.new_topic(), filter=f'attributes.a = "{"x" * 256}"')


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("ack_deadline_seconds", 42),
        ("labels", {"team": "memory"}),
        ("retain_acked_messages", True),
        ("push_config", {"push_endpoint": "http://127.0.0.1:9/"}),
        ("retry_policy", {"minimum_backoff": seconds(1), "maximum_backoff": seconds(2)}),
        ("expiration_policy", {"ttl": seconds(2 * 86_400)}),
        ("message_retention_duration", seconds(3600)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_setting_can_be_updated_by_its_mask(world: World, path: str, value: Any) -> None:
    name = world.new_subscription(world.new_topic())
    update(world, name, path, **{path: value})
    read = world.subscriptions.get_subscription(subscription=name)
    assert getattr(read, path) == getattr(subscription_with(path, value), path)


def test_a_dead_letter_policy_can_be_added_and_taken_away(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic)
    policy: dict[str, Any] = {"dead_letter_topic": topic, "max_delivery_attempts": 7}
    added = update(world, name, "dead_letter_policy", dead_letter_policy=policy)
    assert added.dead_letter_policy == DeadLetterPolicy(**policy)
    assert "dead_letter_policy" not in update(world, name, "dead_letter_policy")


def test_an_update_leaves_alone_what_its_mask_does_not_name(world: World) -> None:
    name = world.new_subscription(world.new_topic(), ack_deadline_seconds=33)
    update(world, name, "retain_acked_messages", retain_acked_messages=True, ack_deadline_seconds=44)
    assert world.subscriptions.get_subscription(subscription=name).ack_deadline_seconds == 33


@pytest.mark.parametrize(
    ("path", "value"),
    [("filter", "attributes:a"), ("enable_message_ordering", True)],
    ids=["filter", "order"],
)
def test_filter_and_ordering_cannot_be_changed(world: World, path: str, value: Any) -> None:
    name = world.new_subscription(world.new_topic())
    with pytest.raises(exceptions.InvalidArgument):
        update(world, name, path, **{path: value})


@pytest.mark.parametrize("paths", [[], ["no_such_field"]], ids=["empty", "unknown"])
def test_an_update_mask_must_name_known_fields(world: World, paths: list[str]) -> None:
    name = world.new_subscription(world.new_topic())
    with pytest.raises(exceptions.InvalidArgument):
        update(world, name, *paths)


def test_a_push_subscription_refuses_pulls_until_it_becomes_a_pull_subscription(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, push_config={"push_endpoint": "http://127.0.0.1:9/"})
    with pytest.raises(exceptions.FailedPrecondition):
        world.pull_now(name)
    world.subscriptions.modify_push_config(subscription=name, push_config={})
    world.publish(topic, b"x")
    assert len(world.pull(name, 1)) == 1
