"""What survives when the process of the emulator ends, however it ends."""

import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.pubsub_v1.types import StreamingPullRequest

from lamina_services.local.pubsub import Emulator, PortUnavailable, StateFileUnusable
from tests.contract.pubsub_servers import PROJECT, QUIET, OwnServer, World, bodies
from tests.contract.pubsub_waiting import eventually

pytestmark = QUIET

Start = Callable[[], "Process"]


class Process:
    """The emulator as a process of its own, on a state file."""

    def __init__(self, state: Path) -> None:
        command = [sys.executable, "-m", "lamina_services.local.pubsub", "--port", "0", "--state", str(state)]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line.startswith("Pub/Sub emulator listens on 127.0.0.1:")
        self.world = World(line.split()[-1])

    def end(self, number: int) -> int:
        """Send a signal and return the exit code."""
        self.world.close()
        self.popen.send_signal(number)
        code = self.popen.wait(10)
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        return code


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the emulator, again and again on the same file."""
    started: list[Process] = []

    def run() -> Process:
        started.append(Process(tmp_path / "state" / "pubsub.db"))
        return started[-1]

    yield run
    for process in started:
        if process.popen.returncode is None:
            process.end(signal.SIGKILL)


def test_a_killed_emulator_has_lost_no_accepted_message(start: Start) -> None:
    process = start()
    topic = process.world.new_topic()
    name = process.world.new_subscription(topic)
    publisher = process.world.publisher()
    accepted: set[str] = set()

    def keep(future: "Future[str]") -> None:
        if future.exception() is None:
            accepted.add(future.result())

    for number in range(5000):
        publisher.publish(topic, b"%d" % number).add_done_callback(keep)
    eventually(lambda: len(accepted) > 500)
    process.popen.kill()
    publisher.stop()
    process.end(signal.SIGKILL)
    confirmed = set(accepted)

    world = start().world
    found: set[str] = set()

    def all_there() -> bool:
        received = world.pull_now(name, 1000)
        found.update(each.message.message_id for each in received)
        if received:
            world.ack(name, *received)
        return confirmed <= found

    eventually(all_there)


def test_an_acknowledged_message_does_not_come_back(start: Start) -> None:
    process = start()
    topic = process.world.new_topic()
    name = process.world.new_subscription(topic)
    process.world.publish(topic, b"done", b"open", b"held")
    received = {each.message.data: each for each in process.world.pull(name, 3)}
    process.world.ack(name, received[b"done"])
    process.world.nack(name, received[b"open"])
    process.world.publish(topic, b"later")  # its commit takes the acknowledgement with it
    process.end(signal.SIGKILL)
    again = bodies(start().world.pull(name, 3))
    assert sorted(again) == [b"held", b"later", b"open"]


def test_settings_survive_a_kill(start: Start) -> None:
    process = start()
    kept, dropped = process.world.new_topic(), process.world.new_topic()
    name = process.world.new_subscription(kept, filter="attributes:a", enable_message_ordering=True)
    before = process.world.subscriptions.get_subscription(subscription=name)
    gone = process.world.new_subscription(kept)
    process.world.subscriptions.delete_subscription(subscription=gone)
    process.world.topics.delete_topic(topic=dropped)
    process.end(signal.SIGKILL)
    world = start().world
    assert world.subscriptions.get_subscription(subscription=name) == before
    assert [each.name for each in world.topics.list_topics(project=PROJECT)] == [kept]
    with pytest.raises(exceptions.NotFound):
        world.pull_now(gone)


def test_attempts_are_counted_across_a_restart_and_order_is_kept(start: Start) -> None:
    process = start()
    topic, grave = process.world.new_topic(), process.world.new_topic()
    policy = {"dead_letter_topic": grave, "max_delivery_attempts": 5}
    name = process.world.new_subscription(topic, enable_message_ordering=True, dead_letter_policy=policy)
    process.world.publish(topic, *[b"%d" % number for number in range(5)], key="k")
    for _ in range(3):
        process.world.nack(name, process.world.pull_now(name)[0])
    assert process.end(signal.SIGTERM) == 0
    received = start().world.pull_now(name)
    assert bodies(received) == [b"%d" % number for number in range(5)]
    assert [each.delivery_attempt for each in received] == [4, 1, 1, 1, 1]


def test_message_ids_are_not_used_again(start: Start) -> None:
    process = start()
    topic = process.world.new_topic()
    process.world.new_subscription(topic)
    before = process.world.publish(topic, b"x", b"y")
    process.end(signal.SIGKILL)
    (after,) = start().world.publish(topic, b"z")
    assert int(after) > max(int(identity) for identity in before)


def test_retained_messages_can_be_replayed_after_a_restart(start: Start) -> None:
    process = start()
    topic = process.world.new_topic()
    name = process.world.new_subscription(topic, retain_acked_messages=True)
    process.world.publish(topic, b"x")
    (received,) = process.world.pull(name, 1)
    process.world.ack(name, received)
    process.end(signal.SIGINT)
    world = start().world
    assert world.pull_now(name) == []
    world.subscriptions.seek(request={"subscription": name, "time": received.message.publish_time})
    assert bodies(world.pull_now(name)) == [b"x"]


async def test_a_state_file_serves_one_emulator_at_a_time(tmp_path: Path) -> None:
    async with Emulator(0, tmp_path / "pubsub.db"):
        with pytest.raises(StateFileUnusable, match="Is another emulator running"):
            await Emulator(0, tmp_path / "pubsub.db").start()


async def test_a_file_that_is_no_state_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pubsub.db"
    path.write_text("something else entirely, and long enough to be read as a header")
    with pytest.raises(StateFileUnusable):
        await Emulator(0, path).start()


async def test_a_taken_port_is_named_in_the_error() -> None:
    async with Emulator() as first:
        port = int(first.endpoint.split(":")[1])
        with pytest.raises(PortUnavailable, match=str(port)):
            await Emulator(port).start()


def test_stopping_ends_streams_as_unavailable_and_leaves_no_task_behind() -> None:
    server = OwnServer()
    world = World(server.endpoint)
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.new_subscription(topic, push_config={"push_endpoint": "http://127.0.0.1:9/"})
    world.publish(topic, b"x")
    request = StreamingPullRequest(subscription=name, stream_ack_deadline_seconds=10)
    requests: queue.SimpleQueue[StreamingPullRequest] = queue.SimpleQueue()
    requests.put(request)
    stream = world.subscriptions.streaming_pull(iter(requests.get, None))
    assert bodies(next(stream).received_messages) == [b"x"]
    server.stop()  # it checks what is left on its loop
    with pytest.raises(exceptions.ServiceUnavailable):
        next(stream)
    world.close()
    requests.put(request)  # lets the thread that sends end


def test_the_counters_tell_what_happened() -> None:
    server = OwnServer()
    world = World(server.endpoint)
    topic = world.new_topic()
    name = world.new_subscription(topic)
    world.publish(topic, b"a", b"b", b"c")
    first, second, _ = world.pull(name, 3)
    world.ack(name, first)
    world.nack(name, second)
    stats = server.stats(name)
    world.close()
    server.stop()
    assert (stats.backlog, stats.in_flight, stats.delivered) == (2, 1, 3)
    assert (stats.acked, stats.nacked, stats.dead_lettered) == (1, 1, 0)
