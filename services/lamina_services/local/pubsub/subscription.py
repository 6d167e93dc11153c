"""One subscription: its settings, its backlog, its timers and its counters."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lamina_services.local.pubsub.backlog import Backlog
from lamina_services.local.pubsub.faults import NotFound, Refusal
from lamina_services.local.pubsub.filters import parse_filter
from lamina_services.local.pubsub.journal import Journal
from lamina_services.local.pubsub.lanes import Consumer, Delivery, Message
from lamina_services.local.pubsub.shapes import SubscriptionConfig, seconds_of

PUSH_RETRY_SECONDS = 0.1
"""The pause after a failed push without a retry policy, so that a broken endpoint does not spin."""

DeadLetter = Callable[["Subscription", Delivery], bool]
"""Forwards a message that failed too often; False when there is nowhere to forward it to."""


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """A subscription at a glance: messages waiting and leased now, and what happened since the start."""

    backlog: int
    """Unsettled messages, those in flight included."""
    in_flight: int
    delivered: int
    acked: int
    nacked: int
    """Nacks and expired deadlines."""
    dead_lettered: int
    oldest_published_at: float | None
    """When the oldest unsettled message was published; seconds since 1970, as the times below."""
    last_acked_at: float | None
    refused_since_ack: int
    """How often a delivery failed since the last one that did not."""


def retry_delay(config: SubscriptionConfig, failures: int) -> float:
    """Seconds before the next attempt after `failures` of them, doubling within the retry policy."""
    if not config.HasField("retry_policy"):
        return PUSH_RETRY_SECONDS if config.push_config.push_endpoint else 0.0
    shortest = seconds_of(config.retry_policy.minimum_backoff) or PUSH_RETRY_SECONDS
    longest = seconds_of(config.retry_policy.maximum_backoff)
    return min(longest, shortest * 2.0 ** min(failures - 1, 32))


class Subscription:
    """Delivers the messages of a topic to whoever leases them. Belongs to the loop it is made in."""

    def __init__(self, config: SubscriptionConfig, *, journal: Journal, dead_letter: DeadLetter) -> None:
        self.config = config
        self._closed_with: type[Refusal] | None = None
        self._journal = journal
        self._dead_letter = dead_letter
        self._matches = parse_filter(config.filter)
        self._backlog = Backlog()
        self._retained: dict[int, Message] = {}
        self._listeners: set[Callable[[], None]] = set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._delivered = self._acked = self._nacked = self._dead_lettered = self._refused_since_ack = 0
        self._last_acked_at: float | None = None

    @property
    def name(self) -> str:
        """The full resource name."""
        return self.config.name

    @property
    def closed(self) -> bool:
        """Whether it is deleted, or the emulator is stopping."""
        return self._closed_with is not None

    def stats(self) -> SubscriptionStats:
        """The counters now."""
        oldest = self._backlog.oldest
        return SubscriptionStats(
            backlog=len(self._backlog),
            in_flight=self._backlog.in_flight,
            delivered=self._delivered,
            acked=self._acked,
            nacked=self._nacked,
            dead_lettered=self._dead_lettered,
            oldest_published_at=oldest.published_ns / 1e9 if oldest else None,
            last_acked_at=self._last_acked_at,
            refused_since_ack=self._refused_since_ack,
        )

    def listen(self, callback: Callable[[], None]) -> None:
        """Call back whenever there may be something to lease, and when the settings change or it closes."""
        self._listeners.add(callback)

    def unlisten(self, callback: Callable[[], None]) -> None:
        """Stop calling back."""
        self._listeners.discard(callback)

    def reconfigure(self, config: SubscriptionConfig) -> None:
        """Replace the settings; the filter and the ordering stay as they were at creation."""
        self.config = config
        if not config.retain_acked_messages:
            for message in self._retained.values():
                self._release(message)
            self._retained.clear()
        self.notify()

    def wants(self, message: Message) -> bool:
        """Whether the filter lets a message pass."""
        return self._matches(message.body.attributes)

    def accept(self, message: Message) -> None:
        """Take a message that was just published; `notify` follows once the batch is complete."""
        self._journal.add_delivery(self.name, message.number)
        self.restore(message)

    def restore(self, message: Message, *, failures: int = 0, acked: bool = False) -> None:
        """Take a message that the journal already holds for this subscription."""
        message.holders += 1
        if acked:
            self._retained[message.number] = message
        else:
            self._enqueue(message, failures)

    def notify(self) -> None:
        """Wake whoever waits for messages."""
        self._set_timer()
        for listener in list(self._listeners):
            listener()

    def lease(self, consumer: Consumer, seconds: float | None = None) -> list[Delivery]:
        """Hand out what the consumer has room for, for `seconds` (the ack deadline unless told)."""
        self.check_open()
        lasts = self.config.ack_deadline_seconds if seconds is None else seconds
        deliveries = self._backlog.lease(consumer, self._loop.time() + lasts)
        self._delivered += len(deliveries)
        if deliveries:
            self._set_timer()
        return deliveries

    async def lease_when_ready(self, consumer: Consumer, seconds: float | None = None) -> list[Delivery]:
        """Wait until `lease` hands out something."""
        wake = asyncio.Event()
        self.listen(wake.set)
        try:
            while not (deliveries := self.lease(consumer, seconds)):
                await wake.wait()
                wake.clear()
            return deliveries
        finally:
            self.unlisten(wake.set)

    def attempt_of(self, delivery: Delivery) -> int:
        """Which attempt this delivery is, counted from 1; 0 without a dead-letter policy."""
        return delivery.failures + 1 if self.config.HasField("dead_letter_policy") else 0

    def acknowledge(self, ack_ids: Iterable[str]) -> None:
        """Settle leased messages; outdated and unknown ids are ignored."""
        for ack_id in ack_ids:
            for delivery in self._backlog.acknowledge(ack_id):
                self._acked += 1
                self._last_acked_at, self._refused_since_ack = time.time(), 0
                self._settle(delivery.message)
        self.notify()

    def modify_deadline(self, ack_ids: Iterable[str], seconds: float) -> None:
        """Move deadlines to `seconds` from now; 0 is a nack."""
        if seconds > 0:
            for ack_id in ack_ids:
                self._backlog.extend(ack_id, self._loop.time() + seconds)
        else:
            for ack_id in ack_ids:
                self._fail(ack_id)
        self.notify()

    def seek(self, moment_ns: int) -> None:
        """Settle all that was published before a moment, and bring back what was acknowledged since then."""
        wanted: list[tuple[Message, int]] = []
        for number, message in list(self._retained.items()):
            if message.published_ns >= moment_ns:
                del self._retained[number]
                self._journal.set_acked(self.name, number, acked=False)
                wanted.append((message, 0))
        for delivery in self._backlog.drain():
            if delivery.message.published_ns >= moment_ns:
                wanted.append((delivery.message, delivery.failures))
            else:
                self._settle(delivery.message)
        for message, failures in sorted(wanted, key=lambda each: each[0].number):
            self._enqueue(message, failures)
        self.notify()

    def check_open(self) -> None:
        """Raise what the subscription was closed with, if it was."""
        if self._closed_with is not None:
            raise self._closed_with(f"The subscription is gone: {self.name}.")

    def close(self, refusal: type[Refusal]) -> None:
        """Stop the timer and refuse what waits in this way. The backlog stays in the journal."""
        self._closed_with = refusal
        if self._timer is not None:
            self._timer.cancel()
        for listener in list(self._listeners):
            listener()

    def discard(self) -> None:
        """Close for good: drop the backlog as well, here and in the journal."""
        for delivery in self._backlog.drain():
            self._release(delivery.message)
        for message in self._retained.values():
            self._release(message)
        self._retained.clear()
        self.close(NotFound)

    def _enqueue(self, message: Message, failures: int) -> None:
        key = message.body.ordering_key if self.config.enable_message_ordering else ""
        self._backlog.add(message, key, failures)

    def _settle(self, message: Message) -> None:
        if self.config.retain_acked_messages:
            self._retained[message.number] = message
            self._journal.set_acked(self.name, message.number, acked=True)
        else:
            self._release(message)

    def _release(self, message: Message) -> None:
        self._journal.delete_delivery(self.name, message.number)
        message.holders -= 1
        if message.holders == 0:
            self._journal.delete_message(message.number)

    def _fail(self, ack_id: str) -> None:
        delivery = self._backlog.fail(ack_id)
        if delivery is None:
            return
        self._nacked += 1
        self._refused_since_ack += 1
        if self.config.HasField("dead_letter_policy"):
            exhausted = delivery.failures >= self.config.dead_letter_policy.max_delivery_attempts
            if exhausted and self._dead_letter(self, delivery):
                self._dead_lettered += 1
                self._backlog.remove(delivery)
                self._release(delivery.message)
                return
            self._journal.set_failures(self.name, delivery.message.number, delivery.failures)
        delay = retry_delay(self.config, delivery.failures)
        self._backlog.resume(delivery.lane, self._loop.time() + delay if delay else 0.0)

    def _set_timer(self) -> None:
        moment = self._backlog.next_event()
        if moment is None or self.closed:
            return
        if self._timer is not None:
            if not self._timer.cancelled() and self._timer.when() <= moment:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = self._loop.time()
        for ack_id in self._backlog.expired(now):
            self._fail(ack_id)
        self._backlog.wake_delayed(now)
        self.notify()
