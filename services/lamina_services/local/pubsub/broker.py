"""Topics, subscriptions and the way of a message from one to the other."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lamina_services.local.pubsub import names
from lamina_services.local.pubsub.faults import AlreadyExists, NotFound, Unavailable
from lamina_services.local.pubsub.journal import Journal
from lamina_services.local.pubsub.lanes import Delivery, Message
from lamina_services.local.pubsub.shapes import (
    PubsubMessage,
    SubscriptionConfig,
    TopicConfig,
    new_message,
    parse_message,
    parse_subscription,
    parse_topic,
)
from lamina_services.local.pubsub.subscription import Subscription


@dataclass(slots=True, eq=False)
class Topic:
    """A topic and the subscriptions that receive from it, by name."""

    config: TopicConfig
    subscriptions: dict[str, Subscription] = field(default_factory=dict[str, Subscription])


class Broker:
    """The whole state of the emulator. No method awaits, so none sees a half-done change."""

    def __init__(
        self,
        journal: Journal,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        on_subscription: Callable[[Subscription], None] = lambda _: None,
    ) -> None:
        """`on_subscription` is called with each subscription that comes to be, restored ones included."""
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self._journal = journal
        self._now_ns = now_ns
        self._on_subscription = on_subscription
        self._numbers = itertools.count(now_ns() // 1000)

    def restore(self) -> None:
        """Load what the journal holds."""
        saved = self._journal.load()
        for body in saved.topics:
            topic = parse_topic(body)
            self.topics[topic.name] = Topic(topic)
        for body in saved.subscriptions:
            self._attach(parse_subscription(body))
        messages = {number: _message(number, parse_message(body)) for number, body in saved.messages.items()}
        for each in saved.deliveries:
            subscription = self.subscriptions[each.subscription]
            subscription.restore(messages[each.number], failures=each.failures, acked=each.acked)
        self._numbers = itertools.count(max(self._now_ns() // 1000, max(messages, default=0) + 1))
        for subscription in self.subscriptions.values():
            subscription.notify()

    def close(self) -> None:
        """Refuse everything from now on; the journal keeps the state."""
        for subscription in self.subscriptions.values():
            subscription.close(Unavailable)

    def topic(self, name: str) -> Topic:
        """The topic, or NotFound."""
        topic = self.topics.get(names.topic_name(name))
        if topic is None:
            raise NotFound(f"Topic not found: {name}.")
        return topic

    def create_topic(self, config: TopicConfig) -> None:
        """Add a topic, or raise AlreadyExists."""
        if names.topic_name(config.name) in self.topics:
            raise AlreadyExists(f"Topic already exists: {config.name}.")
        self.topics[config.name] = Topic(config)
        self._save_topic(config)

    def update_topic(self, config: TopicConfig) -> None:
        """Replace the settings of an existing topic."""
        self.topic(config.name).config = config
        self._save_topic(config)

    def delete_topic(self, name: str) -> None:
        """Remove a topic. Its subscriptions keep their backlog and lose their topic."""
        topic = self.topic(name)
        del self.topics[name]
        self._journal.delete_topic(name)
        for subscription in topic.subscriptions.values():
            subscription.config.topic = names.DELETED_TOPIC
            self._journal.put_subscription(subscription.name, subscription.config.SerializeToString())
        self._journal.commit()

    def subscription(self, name: str) -> Subscription:
        """The subscription, or NotFound."""
        subscription = self.subscriptions.get(names.subscription_name(name))
        if subscription is None:
            raise NotFound(f"Subscription does not exist: {name}.")
        return subscription

    def create_subscription(self, config: SubscriptionConfig) -> None:
        """Add a subscription to an existing topic, or raise AlreadyExists."""
        if names.subscription_name(config.name) in self.subscriptions:
            raise AlreadyExists(f"Subscription already exists: {config.name}.")
        self.topic(config.topic)
        self._attach(config)
        self._save_subscription(config)

    def update_subscription(self, config: SubscriptionConfig) -> None:
        """Replace the settings of an existing subscription."""
        self.subscription(config.name).reconfigure(config)
        self._save_subscription(config)

    def delete_subscription(self, name: str) -> None:
        """Remove a subscription and its backlog."""
        subscription = self.subscription(name)
        del self.subscriptions[name]
        topic = self.topics.get(subscription.config.topic)
        if topic is not None:
            topic.subscriptions.pop(name, None)
        subscription.discard()
        self._journal.delete_subscription(name)
        self._journal.commit()

    def publish(self, topic_name: str, bodies: Iterable[PubsubMessage]) -> Sequence[str]:
        """Give each message an id and a time, hand it to every subscription that wants it, and save that."""
        numbers = self._distribute(self.topic(topic_name), bodies)
        self._journal.commit()
        return [str(number) for number in numbers]

    def _distribute(self, topic: Topic, bodies: Iterable[PubsubMessage]) -> list[int]:
        numbers: list[int] = []
        for body in bodies:
            number = next(self._numbers)
            numbers.append(number)
            body.message_id = str(number)
            body.publish_time.FromNanoseconds(self._now_ns())
            message = _message(number, body)
            takers = [each for each in topic.subscriptions.values() if each.wants(message)]
            if takers:
                self._journal.add_message(number, body.SerializeToString())
            for subscription in takers:
                subscription.accept(message)
        for subscription in topic.subscriptions.values():
            subscription.notify()
        return numbers

    def _dead_letter(self, source: Subscription, delivery: Delivery) -> bool:
        topic = self.topics.get(source.config.dead_letter_policy.dead_letter_topic)
        if topic is None:
            return False
        body = delivery.message.body
        published = body.publish_time.ToJsonString()
        attributes = dict(body.attributes) | {
            "CloudPubSubDeadLetterSourceDeliveryCount": str(delivery.failures),
            "CloudPubSubDeadLetterSourceSubscription": names.id_of(source.name),
            "CloudPubSubDeadLetterSourceSubscriptionProject": names.project_of(source.name),
            "CloudPubSubDeadLetterSourceTopicPublishTime": published,
        }
        copy = new_message(data=body.data, attributes=attributes, ordering_key=body.ordering_key)
        self._distribute(topic, [copy])
        return True

    def _attach(self, config: SubscriptionConfig) -> None:
        subscription = Subscription(config, journal=self._journal, dead_letter=self._dead_letter)
        self.subscriptions[config.name] = subscription
        topic = self.topics.get(config.topic)
        if topic is not None:
            topic.subscriptions[config.name] = subscription
        self._on_subscription(subscription)

    def _save_topic(self, config: TopicConfig) -> None:
        self._journal.put_topic(config.name, config.SerializeToString())
        self._journal.commit()

    def _save_subscription(self, config: SubscriptionConfig) -> None:
        self._journal.put_subscription(config.name, config.SerializeToString())
        self._journal.commit()


def _message(number: int, body: PubsubMessage) -> Message:
    return Message(number, body, body.publish_time.ToNanoseconds(), body.ByteSize())
