"""Pushes the messages of one subscription to its endpoint, as long as the subscription has one."""

import asyncio
import logging

from lamina_services.local.pubsub.http_client import HttpClient, PushFailed
from lamina_services.local.pubsub.lanes import Consumer, Delivery
from lamina_services.local.pubsub.push_request import build_push
from lamina_services.local.pubsub.subscription import Subscription

ACKNOWLEDGING = frozenset({102, 200, 201, 202, 204})
"""The statuses that settle a message; anything else is a nack."""

LEASE_MARGIN_SECONDS = 5
"""The ack deadline limits the request; the lease lasts this much longer, so that the two never race."""

_log = logging.getLogger(__name__)


class Pusher:
    """Follows a subscription: starts when it gains an endpoint, stops when it loses it or closes."""

    def __init__(self, subscription: Subscription, client: HttpClient, window: int) -> None:
        """At most `window` requests are in flight at once, and one for each ordering key."""
        self._subscription = subscription
        self._client = client
        self._window = window
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        subscription.listen(self._follow)
        self._follow()

    @property
    def done(self) -> bool:
        """Whether the subscription is closed and nothing of it is in flight."""
        return self._subscription.closed and not self._ending

    async def stop(self) -> None:
        """Abandon the requests in flight; their messages stay unacknowledged."""
        self._subscription.unlisten(self._follow)
        self._end()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _follow(self) -> None:
        pushes = not self._subscription.closed and bool(self._subscription.config.push_config.push_endpoint)
        if pushes and self._task is None:
            self._task = asyncio.create_task(self._pump(), name=f"push {self._subscription.name}")
        elif not pushes:
            self._end()

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._ending.add(self._task)
            self._task.add_done_callback(self._ending.discard)
            self._task = None

    async def _pump(self) -> None:
        consumer = Consumer(max_messages=self._window, one_per_lane=True)
        async with asyncio.TaskGroup() as group:
            while True:
                lasts = self._subscription.config.ack_deadline_seconds + LEASE_MARGIN_SECONDS
                for delivery in await self._subscription.lease_when_ready(consumer, lasts):
                    group.create_task(self._push(delivery, delivery.ack_id))

    async def _push(self, delivery: Delivery, ack_id: str) -> None:
        subscription = self._subscription
        config = subscription.config
        request = build_push(config, delivery.message.body, subscription.attempt_of(delivery))
        try:
            async with asyncio.timeout(config.ack_deadline_seconds):
                status = await self._client.post(
                    config.push_config.push_endpoint, request.headers, request.body
                )
        except (OSError, PushFailed, ValueError) as error:  # a timeout is an OSError
            _log.debug("push to %s failed: %r", config.push_config.push_endpoint, error)
            subscription.modify_deadline([ack_id], 0)
            return
        if status in ACKNOWLEDGING:
            subscription.acknowledge([ack_id])
        else:
            subscription.modify_deadline([ack_id], 0)
