"""Creates what topology.json says, on an emulator: topics, push subscriptions and their dead letters.

In the cloud Terraform does this from the same file. Doing it again changes nothing but the endpoints.
"""

# The generated client leaves its `retry` and `request` arguments untyped.
# pyright: reportUnknownMemberType=false

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import grpc
from google.api_core.exceptions import (
    AlreadyExists,
    GoogleAPICallError,
    InvalidArgument,
    MethodNotImplemented,
    NotFound,
    RetryError,
)
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1 import (
    DeadLetterPolicy,
    ExpirationPolicy,
    PublisherAsyncClient,
    PushConfig,
    RetryPolicy,
    SubscriberAsyncClient,
)
from google.pubsub_v1 import Subscription as SubscriptionResource
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from lamina.errors import DependencyUnavailable
from lamina.topology import Recording, Subscription, Topology

_PULL_ACK_DEADLINE_S = 60
_UPDATABLE = ("push_config", "ack_deadline_seconds", "retry_policy", "dead_letter_policy")


class Topics:
    """The topology on one emulator."""

    def __init__(self, endpoint: str, project: str, topology: Topology, prefix: str = "") -> None:
        self._channel = grpc.aio.insecure_channel(endpoint)
        self._publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=self._channel))
        self._subscriber = SubscriberAsyncClient(
            transport=SubscriberGrpcAsyncIOTransport(channel=self._channel)
        )
        self._project = project
        self._topology = topology
        self._prefix = prefix

    async def create(self, services: Mapping[str, str]) -> None:
        """Create or update everything. `services`: the base URL of each service.

        DependencyUnavailable where the emulator does not answer or refuses.
        """
        try:
            dead = [subscription.dead_letter_topic for subscription in self._topology.subscriptions]
            await asyncio.gather(*(self._topic(name) for name in (*self._topology.topics, *dead)))
            await asyncio.gather(*(self._subscribe(self._dead(name)) for name in dead))
            await asyncio.gather(
                *(self._subscribe(self._push(s, services[s.service])) for s in self._topology.subscriptions),
                # Without a filter, and without dead letters of their own.
                *(
                    self._subscribe(self._pushed(each, services[each.service]))
                    for each in self._topology.recordings
                ),
            )
        except (GoogleAPICallError, RetryError) as error:
            raise DependencyUnavailable("Pub/Sub emulator", str(error)[:300]) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    def topic_path(self, name: str) -> str:
        """The resource name of a topic."""
        return f"projects/{self._project}/topics/{self._prefix}{name}"

    async def _topic(self, name: str) -> None:
        try:
            await self._publisher.create_topic(name=self.topic_path(name), timeout=10)
        except AlreadyExists:
            return

    async def _subscribe(self, wanted: SubscriptionResource) -> None:
        try:
            await self._subscriber.create_subscription(request=wanted, timeout=10)
        except AlreadyExists:
            await self._update(wanted)

    async def _update(self, wanted: SubscriptionResource) -> None:
        """Bring an existing one up to date: the services' ports may differ from the last run's."""
        if not wanted.push_config.push_endpoint:
            return
        mask = FieldMask(paths=list(_UPDATABLE))
        try:
            await self._subscriber.update_subscription(subscription=wanted, update_mask=mask, timeout=10)
        except (InvalidArgument, MethodNotImplemented, NotFound):  # emulators differ in what can be updated
            await self._subscriber.modify_push_config(
                subscription=wanted.name, push_config=wanted.push_config, timeout=10
            )

    def _push(self, subscription: Subscription, service_url: str) -> SubscriptionResource:
        resource = self._pushed(subscription, service_url)
        resource.filter = subscription.filter
        resource.dead_letter_policy = DeadLetterPolicy(
            dead_letter_topic=self.topic_path(subscription.dead_letter_topic),
            max_delivery_attempts=self._topology.delivery.max_delivery_attempts,
        )
        return resource

    def _pushed(self, subscription: Subscription | Recording, service_url: str) -> SubscriptionResource:
        delivery = self._topology.delivery
        return SubscriptionResource(
            name=self._subscription_path(subscription.name),
            topic=self.topic_path(subscription.topic),
            push_config=PushConfig(push_endpoint=f"{service_url}{subscription.path}"),
            ack_deadline_seconds=subscription.ack_deadline_s,
            retry_policy=RetryPolicy(
                minimum_backoff=timedelta(seconds=delivery.minimum_backoff_s),
                maximum_backoff=timedelta(seconds=delivery.maximum_backoff_s),
            ),
            message_retention_duration=timedelta(days=delivery.retention_days),
            expiration_policy=ExpirationPolicy(),  # without a ttl: never
        )

    def _dead(self, name: str) -> SubscriptionResource:
        """Without a subscription a dead-letter topic would lose what it is given."""
        return SubscriptionResource(
            name=self._subscription_path(name),
            topic=self.topic_path(name),
            ack_deadline_seconds=_PULL_ACK_DEADLINE_S,
            message_retention_duration=timedelta(days=self._topology.delivery.retention_days),
            expiration_policy=ExpirationPolicy(),
        )

    def _subscription_path(self, name: str) -> str:
        return f"projects/{self._project}/subscriptions/{self._prefix}{name}"
