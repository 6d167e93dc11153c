"""StreamingPull: messages flow one way; acknowledgements, deadlines and heartbeats the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from lamina_services.local.pubsub.broker import Broker
from lamina_services.local.pubsub.checks import check_ack_deadline
from lamina_services.local.pubsub.faults import FailedPrecondition, InvalidArgument
from lamina_services.local.pubsub.lanes import Consumer, Delivery
from lamina_services.local.pubsub.shapes import proto_class
from lamina_services.local.pubsub.subscription import Subscription

RESPONSE_MAX_MESSAGES = 1000
RESPONSE_MAX_BYTES = 8_000_000

Send = Callable[[Any], Awaitable[None]]

_ReceivedMessage = proto_class("ReceivedMessage")
_StreamingPullResponse = proto_class("StreamingPullResponse")


def pullable(subscription: Subscription) -> Subscription:
    """The subscription itself, or FailedPrecondition when it pushes."""
    if subscription.config.push_config.push_endpoint:
        raise FailedPrecondition(f"The subscription pushes to an endpoint: {subscription.name}.")
    return subscription


def received(subscription: Subscription, delivery: Delivery) -> Any:
    """A delivery as a subscriber sees it."""
    return _ReceivedMessage(
        ack_id=delivery.ack_id,
        message=delivery.message.body,
        delivery_attempt=subscription.attempt_of(delivery),
    )


class StreamingPull:
    """Serves the streams of all subscriptions of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def serve(self, requests: AsyncIterator[Any], send: Send) -> None:
        """Run one stream until the client ends it or the subscription closes.

        What the stream holds at its end stays leased until its deadline, as in the service.
        """
        first = await anext(requests, None)
        if first is None:
            raise InvalidArgument("The stream ended before it named a subscription.")
        session = _Session(pullable(self._broker.subscription(first.subscription)), first, send)
        tasks = [asyncio.create_task(session.read(requests)), asyncio.create_task(session.write())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


class _Session:
    def __init__(self, subscription: Subscription, first: Any, send: Send) -> None:
        check_ack_deadline(first.stream_ack_deadline_seconds)
        self._subscription = subscription
        self._send = send
        self._lease_seconds: float = first.stream_ack_deadline_seconds
        self._consumer = Consumer(
            max_messages=max(0, first.max_outstanding_messages),
            max_bytes=max(0, first.max_outstanding_bytes),
            sticky=True,
        )
        self._apply(first)

    async def read(self, requests: AsyncIterator[Any]) -> None:
        """Apply what the client sends until it closes its side."""
        async for request in requests:
            if request.subscription:
                raise InvalidArgument("Only the first request of a stream names the subscription.")
            if request.stream_ack_deadline_seconds:
                check_ack_deadline(request.stream_ack_deadline_seconds)
                self._lease_seconds = request.stream_ack_deadline_seconds
            self._apply(request)

    async def write(self) -> None:
        """Send messages as fast as the client has room for them."""
        while True:
            pullable(self._subscription)
            ready = await self._subscription.lease_when_ready(self._consumer, self._lease_seconds)
            for part in _parts(ready):
                messages = [received(self._subscription, delivery) for delivery in part]
                await self._send(
                    _StreamingPullResponse(
                        received_messages=messages, subscription_properties=self._properties()
                    )
                )

    def _apply(self, request: Any) -> None:
        if len(request.modify_deadline_ack_ids) != len(request.modify_deadline_seconds):
            raise InvalidArgument("modify_deadline_ack_ids and modify_deadline_seconds differ in length.")
        if request.ack_ids:
            self._subscription.acknowledge(request.ack_ids)
        for ack_id, seconds in zip(
            request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True
        ):
            self._subscription.modify_deadline([ack_id], seconds)

    def _properties(self) -> Any:
        config = self._subscription.config
        return _StreamingPullResponse.SubscriptionProperties(
            exactly_once_delivery_enabled=config.enable_exactly_once_delivery,
            message_ordering_enabled=config.enable_message_ordering,
        )


def _parts(deliveries: list[Delivery]) -> Iterator[list[Delivery]]:
    part: list[Delivery] = []
    size = 0
    for delivery in deliveries:
        if part and (len(part) >= RESPONSE_MAX_MESSAGES or size + delivery.message.size > RESPONSE_MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(delivery)
        size += delivery.message.size
    if part:
        yield part
