"""The unsettled deliveries of one subscription, as a state machine without a clock, a loop or I/O.

Every message waits in a lane. With ordering, a lane holds the messages of one key and is served to one
consumer at a time; without, each message has a lane to itself. When a leased message fails, it goes back to
the head of its lane together with all that were handed out after it, even acknowledged ones, as the service
documents it.
Times are seconds on any clock that only moves forward.
"""

import heapq
import itertools
import time
from collections import deque
from collections.abc import Iterator

from lamina_services.local.pubsub.lanes import Consumer, Delivery, Lane, Message


class Backlog:
    """What one subscription has not settled yet."""

    def __init__(self) -> None:
        self._keyed: dict[str, Lane] = {}
        self._all: dict[Delivery, None] = {}  # in order of publication
        self._leased: dict[str, Delivery] = {}
        self._ready: deque[Lane] = deque()
        self._delayed: list[tuple[float, int, Lane]] = []
        self._deadlines: list[tuple[float, str]] = []
        self._ticket = itertools.count()
        # Ack ids of an earlier process must never name a lease of this one.
        self._lease_number = itertools.count(time.time_ns() // 1000)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def in_flight(self) -> int:
        """How many deliveries are leased now."""
        return len(self._leased)

    @property
    def oldest(self) -> Message | None:
        """What was published first of all that is not settled."""
        return next((delivery.message for delivery in self._all), None)

    def add(self, message: Message, key: str, failures: int = 0) -> None:
        """Append a message to the lane of `key`, or to a lane of its own when `key` is empty."""
        lane = self._keyed.get(key) if key else None
        if lane is None:
            lane = Lane(key)
            if key:
                self._keyed[key] = lane
        delivery = Delivery(message, lane, failures)
        lane.pending.append(delivery)
        self._all[delivery] = None
        if lane.queue is None:
            self._enqueue(lane)

    def lease(self, consumer: Consumer, deadline: float) -> list[Delivery]:
        """Hand out what is ready and fits into the consumer's room; each gets a fresh ack id."""
        taken: list[Delivery] = []
        while consumer.has_room() and (lane := self._next_lane(consumer)) is not None:
            lane.owner = consumer
            while lane.pending and consumer.has_room():
                delivery = lane.pending.popleft()
                delivery.ack_id = f"{delivery.message.number}:{next(self._lease_number)}"
                delivery.consumer = consumer
                lane.outstanding.append(delivery)
                self._leased[delivery.ack_id] = delivery
                self._set_deadline(delivery, deadline)
                consumer.take(delivery)
                taken.append(delivery)
                if consumer.one_per_lane:
                    break
            self._enqueue(lane)
        return taken

    def find(self, ack_id: str) -> Delivery | None:
        """The delivery that holds this lease, if the lease is still good."""
        return self._leased.get(ack_id)

    def acknowledge(self, ack_id: str) -> list[Delivery]:
        """End a lease well. Returns what is settled by that; nothing for an unknown or outdated ack id."""
        delivery = self._leased.get(ack_id)
        if delivery is None:
            return []
        self._end_lease(delivery)
        lane, settled = delivery.lane, 0
        while settled < len(lane.outstanding) and not lane.outstanding[settled].ack_id:
            settled += 1
        done, lane.outstanding = lane.outstanding[:settled], lane.outstanding[settled:]
        for each in done:
            self._all.pop(each, None)
        self._requeue(lane)
        return done

    def fail(self, ack_id: str) -> Delivery | None:
        """End a lease badly: the delivery and those after it return to the head of their lane.

        The lane is not served again before `resume` or `remove`. None for an unknown or outdated ack id.
        """
        delivery = self._leased.get(ack_id)
        if delivery is None:
            return None
        lane = delivery.lane
        at = lane.outstanding.index(delivery)
        revoked, lane.outstanding = lane.outstanding[at:], lane.outstanding[:at]
        for each in revoked:
            if each.ack_id:
                self._end_lease(each)
        lane.pending.extendleft(reversed(revoked))
        lane.queue = None
        delivery.failures += 1
        return delivery

    def resume(self, lane: Lane, not_before: float = 0.0) -> None:
        """Serve a failed lane again, from the given moment on."""
        lane.not_before = not_before
        self._requeue(lane)

    def remove(self, delivery: Delivery) -> None:
        """Take a failed delivery out for good; its lane goes on."""
        delivery.lane.pending.remove(delivery)
        self._all.pop(delivery, None)
        self._requeue(delivery.lane)

    def extend(self, ack_id: str, deadline: float) -> None:
        """Move the deadline of a lease; an unknown ack id is ignored."""
        delivery = self._leased.get(ack_id)
        if delivery is not None:
            self._set_deadline(delivery, deadline)

    def expired(self, now: float) -> Iterator[str]:
        """The ack ids of leases whose deadline has passed; fail each before you ask for the next."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, ack_id = heapq.heappop(self._deadlines)
            if self._is_current(deadline, ack_id):
                yield ack_id

    def wake_delayed(self, now: float) -> None:
        """Make lanes ready whose backoff is over."""
        while self._delayed and self._delayed[0][0] <= now:
            _, _, lane = heapq.heappop(self._delayed)
            if lane.queue is self._delayed and lane.not_before <= now:
                lane.not_before = 0.0
                self._requeue(lane)

    def next_event(self) -> float | None:
        """When the next deadline or backoff ends, if any is running."""
        while self._deadlines and not self._is_current(*self._deadlines[0]):
            heapq.heappop(self._deadlines)
        moments = [queue[0][0] for queue in (self._deadlines, self._delayed) if queue]
        return min(moments, default=None)

    def drain(self) -> list[Delivery]:
        """Take everything out, leases included, in order of publication."""
        for delivery in list(self._leased.values()):
            self._end_lease(delivery)
        everything = sorted(self._all, key=lambda delivery: delivery.message.number)
        for lane in {delivery.lane for delivery in everything}:
            lane.queue = None
            lane.pending.clear()
        self._all.clear()
        self._keyed.clear()
        self._ready.clear()
        self._delayed.clear()
        return everything

    def _next_lane(self, consumer: Consumer) -> Lane | None:
        for queue in (consumer.ready, self._ready):
            while queue:
                lane = queue.popleft()
                if lane.queue is queue:
                    lane.queue = None
                    return lane
        return None

    def _enqueue(self, lane: Lane) -> None:
        """Put a lane that waits nowhere where it belongs now: ready, delayed, with its owner, or nowhere."""
        if not lane.pending:
            if not lane.outstanding:
                self._keyed.pop(lane.key, None)
            return
        if lane.not_before:
            lane.queue = self._delayed
            heapq.heappush(self._delayed, (lane.not_before, next(self._ticket), lane))
        elif not lane.outstanding:
            lane.queue = self._ready
            self._ready.append(lane)
        elif lane.owner is not None and lane.owner.sticky:
            lane.queue = lane.owner.ready
            lane.owner.ready.append(lane)

    def _requeue(self, lane: Lane) -> None:
        if lane.queue is self._ready:
            return
        if not lane.outstanding:
            lane.owner = None
        lane.queue = None
        self._enqueue(lane)

    def _set_deadline(self, delivery: Delivery, deadline: float) -> None:
        delivery.deadline = deadline
        heapq.heappush(self._deadlines, (deadline, delivery.ack_id))
        if len(self._deadlines) > 2 * len(self._leased) + 1000:  # mostly leases that ended before their time
            self._deadlines = [entry for entry in self._deadlines if self._is_current(*entry)]
            heapq.heapify(self._deadlines)

    def _is_current(self, deadline: float, ack_id: str) -> bool:
        delivery = self._leased.get(ack_id)
        return delivery is not None and delivery.deadline == deadline

    def _end_lease(self, delivery: Delivery) -> None:
        del self._leased[delivery.ack_id]
        delivery.ack_id = ""
        if delivery.consumer is not None:
            delivery.consumer.release(delivery)
            delivery.consumer = None
