"""The backlog as a state machine: whatever consumers do, nothing is lost, doubled or out of order."""

from hypothesis import given
from hypothesis import strategies as st

from lamina_services.local.pubsub.backlog import Backlog
from lamina_services.local.pubsub.lanes import Consumer, Message
from lamina_services.local.pubsub.shapes import new_message

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "lease", "ack", "fail", "delay", "remove", "expire"]), st.integers(0, 1000)
    ),
    max_size=60,
)


class Play:
    """A backlog with three consumers, and a record of what was settled."""

    def __init__(self) -> None:
        self.backlog = Backlog()
        self.consumers = [
            Consumer(max_messages=3, one_per_lane=True),
            Consumer(max_messages=4, sticky=True),
            Consumer(max_messages=2),
        ]
        self.now = 0.0
        self.added: list[tuple[str, int]] = []
        self.settled: list[tuple[str, int]] = []
        self.removed: set[int] = set()
        self.leases: list[str] = []

    def do(self, action: str, choice: int) -> None:
        """Take one step; steps that have nothing to act on do nothing."""
        self.now += 1
        if action == "add":
            self._add("" if choice % 4 == 0 else f"key{choice % 3}")
        elif action == "lease":
            consumer = self.consumers[choice % 3]
            taken = self.backlog.lease(consumer, self.now + 5 + choice % 20)
            self.leases.extend(delivery.ack_id for delivery in taken)
            assert not consumer.has_room() or not self.backlog.lease(consumer, self.now)
        elif action == "expire":
            for ack_id in self.backlog.expired(self.now):
                self._fail(ack_id, 0)
            self.backlog.wake_delayed(self.now)
        elif self.leases:
            ack_id = self.leases[choice % len(self.leases)]
            if action == "ack":
                self._ack(ack_id)
            elif action == "remove":
                self._remove(ack_id)
            else:
                self._fail(ack_id, 3 if action == "delay" else 0)

    def finish(self) -> None:
        """Acknowledge everything that is left, as a consumer without limits."""
        last = Consumer()
        while len(self.backlog):
            self.now = max(self.now, self.backlog.next_event() or 0.0)
            self.backlog.wake_delayed(self.now)
            for ack_id in self.backlog.expired(self.now):
                self._fail(ack_id, 0)
            for delivery in self.backlog.lease(last, self.now + 1):
                self._ack(delivery.ack_id)
        assert self.backlog.in_flight == 0

    def _add(self, key: str) -> None:
        number = len(self.added)
        self.added.append((key, number))
        body = new_message(data=b"x", ordering_key=key)
        self.backlog.add(Message(number, body, number, 1), key)

    def _ack(self, ack_id: str) -> None:
        for delivery in self.backlog.acknowledge(ack_id):
            self.settled.append((delivery.message.body.ordering_key, delivery.message.number))

    def _fail(self, ack_id: str, delay: float) -> None:
        delivery = self.backlog.fail(ack_id)
        if delivery is not None:
            self.backlog.resume(delivery.lane, self.now + delay if delay else 0.0)

    def _remove(self, ack_id: str) -> None:
        delivery = self.backlog.fail(ack_id)
        if delivery is not None:
            self.removed.add(delivery.message.number)
            self.backlog.remove(delivery)


@given(ACTIONS)
def test_every_message_is_settled_once_and_each_key_in_order(actions: list[tuple[str, int]]) -> None:
    play = Play()
    for action, choice in actions:
        play.do(action, choice)
    play.finish()
    assert sorted(play.settled) == sorted(each for each in play.added if each[1] not in play.removed)
    for key in ("key0", "key1", "key2"):
        numbers = [number for settled, number in play.settled if settled == key]
        assert numbers == sorted(numbers)
    assert all(consumer.held_messages == consumer.held_bytes == 0 for consumer in play.consumers)


def test_a_late_failure_takes_back_acknowledged_followers() -> None:
    play = Play()
    for _ in range(3):
        play.do("add", 1)
    first, second, third = play.backlog.lease(Consumer(), 10)
    assert play.backlog.acknowledge(third.ack_id) == []
    assert play.backlog.fail(first.ack_id) is first
    play.backlog.resume(first.lane)
    assert play.backlog.lease(Consumer(), 10) == [first, second, third]
    assert (first.failures, second.failures, third.failures) == (1, 0, 0)


def test_a_stream_keeps_its_key_and_another_consumer_waits() -> None:
    play = Play()
    play.do("add", 1)
    stream, other = Consumer(sticky=True), Consumer()
    (first,) = play.backlog.lease(stream, 10)
    play.do("add", 1)
    assert play.backlog.lease(other, 10) == []
    (second,) = play.backlog.lease(stream, 10)
    play.backlog.acknowledge(first.ack_id)
    play.backlog.acknowledge(second.ack_id)
    play.do("add", 1)
    assert len(play.backlog.lease(other, 10)) == 1


def test_draining_ends_every_lease() -> None:
    play = Play()
    for choice in range(6):
        play.do("add", choice)
    consumer = Consumer(max_messages=3)
    leased = play.backlog.lease(consumer, 10)
    drained = play.backlog.drain()
    assert [delivery.message.number for delivery in drained] == list(range(6))
    assert (len(play.backlog), play.backlog.in_flight, consumer.held_messages) == (0, 0, 0)
    assert play.backlog.acknowledge(leased[0].ack_id) == []
    assert play.backlog.next_event() is None
