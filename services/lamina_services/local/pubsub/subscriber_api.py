"""The Subscriber service: subscriptions, pull, acknowledgements and seek."""

import asyncio
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty

from lamina_services.local.pubsub import names, rpc
from lamina_services.local.pubsub.broker import Broker
from lamina_services.local.pubsub.checks import MAX_ACK_DEADLINE, check_ack_ids, complete_subscription
from lamina_services.local.pubsub.faults import InvalidArgument
from lamina_services.local.pubsub.lanes import Consumer
from lamina_services.local.pubsub.shapes import SubscriptionConfig, proto_class
from lamina_services.local.pubsub.streaming import StreamingPull, pullable, received

PULL_WAIT_SECONDS = 60.0
"""How long a pull waits for a first message before it answers with none."""
PULL_MAX_MESSAGES = 1000
PULL_MAX_BYTES = 10_000_000

_IMMUTABLE = ("name", "topic", "filter", "enable_message_ordering", "state", "detached")
_PullResponse = proto_class("PullResponse")
_SeekResponse = proto_class("SeekResponse")
_ListSubscriptionsResponse = proto_class("ListSubscriptionsResponse")


class SubscriberApi:
    """Subscriptions and consumption, over a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handler(self) -> grpc.GenericRpcHandler:
        """What the server registers."""
        return rpc.service(
            "Subscriber",
            {
                "CreateSubscription": rpc.unary("Subscription", self._create),
                "GetSubscription": rpc.unary("GetSubscriptionRequest", self._get),
                "UpdateSubscription": rpc.unary("UpdateSubscriptionRequest", self._update),
                "ListSubscriptions": rpc.unary("ListSubscriptionsRequest", self._list),
                "DeleteSubscription": rpc.unary("DeleteSubscriptionRequest", self._delete),
                "ModifyPushConfig": rpc.unary("ModifyPushConfigRequest", self._modify_push_config),
                "ModifyAckDeadline": rpc.unary("ModifyAckDeadlineRequest", self._modify_ack_deadline),
                "Acknowledge": rpc.unary("AcknowledgeRequest", self._acknowledge),
                "Pull": rpc.unary("PullRequest", self._pull),
                "StreamingPull": rpc.stream("StreamingPullRequest", StreamingPull(self._broker).serve),
                "Seek": rpc.unary("SeekRequest", self._seek),
            },
        )

    async def _create(self, request: SubscriptionConfig) -> SubscriptionConfig:
        config = complete_subscription(request)
        self._check_dead_letter_topic(config)
        self._broker.create_subscription(config)
        return config

    async def _get(self, request: Any) -> SubscriptionConfig:
        return self._broker.subscription(request.subscription).config

    async def _update(self, request: Any) -> SubscriptionConfig:
        current = self._broker.subscription(request.subscription.name).config
        paths = request.update_mask.paths
        merged = complete_subscription(
            rpc.merge_fields(current, request.subscription, paths, immutable=_IMMUTABLE)
        )
        if any(path.startswith("dead_letter_policy") for path in paths):
            self._check_dead_letter_topic(merged)
        self._broker.update_subscription(merged)
        return merged

    async def _list(self, request: Any) -> Any:
        prefix = names.project_name(request.project) + "/"
        ours = (name for name in self._broker.subscriptions if name.startswith(prefix))
        found, token = rpc.page(ours, request.page_size, request.page_token)
        configs = [self._broker.subscriptions[name].config for name in found]
        return _ListSubscriptionsResponse(subscriptions=configs, next_page_token=token)

    async def _delete(self, request: Any) -> Any:
        self._broker.delete_subscription(request.subscription)
        return Empty()

    async def _modify_push_config(self, request: Any) -> Any:
        current = self._broker.subscription(request.subscription).config
        update = proto_class("Subscription")(push_config=request.push_config)
        merged = rpc.merge_fields(current, update, ["push_config"], immutable=())
        self._broker.update_subscription(complete_subscription(merged))
        return Empty()

    async def _modify_ack_deadline(self, request: Any) -> Any:
        subscription = self._broker.subscription(request.subscription)
        check_ack_ids(request.ack_ids)
        if not 0 <= request.ack_deadline_seconds <= MAX_ACK_DEADLINE:
            raise InvalidArgument(f"An ack deadline is 0 to {MAX_ACK_DEADLINE} seconds.")
        subscription.modify_deadline(request.ack_ids, request.ack_deadline_seconds)
        return Empty()

    async def _acknowledge(self, request: Any) -> Any:
        subscription = self._broker.subscription(request.subscription)
        check_ack_ids(request.ack_ids)
        subscription.acknowledge(request.ack_ids)
        return Empty()

    async def _pull(self, request: Any) -> Any:
        subscription = pullable(self._broker.subscription(request.subscription))
        if request.max_messages <= 0:
            raise InvalidArgument("max_messages must be positive.")
        consumer = Consumer(
            max_messages=min(request.max_messages, PULL_MAX_MESSAGES), max_bytes=PULL_MAX_BYTES
        )
        deliveries = subscription.lease(consumer)
        if not deliveries and not request.return_immediately:
            try:
                async with asyncio.timeout(PULL_WAIT_SECONDS):
                    deliveries = await subscription.lease_when_ready(consumer)
            except TimeoutError:
                deliveries = []
        messages = [received(subscription, delivery) for delivery in deliveries]
        return _PullResponse(received_messages=messages)

    async def _seek(self, request: Any) -> Any:
        subscription = self._broker.subscription(request.subscription)
        if not request.HasField("time"):
            raise InvalidArgument("Seek takes a time here; snapshots are not supported.")
        subscription.seek(request.time.ToNanoseconds())
        return _SeekResponse()

    def _check_dead_letter_topic(self, config: SubscriptionConfig) -> None:
        if config.HasField("dead_letter_policy"):
            self._broker.topic(config.dead_letter_policy.dead_letter_topic)
