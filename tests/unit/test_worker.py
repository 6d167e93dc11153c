"""The edge: what becomes an acknowledgement, a retry, or a parked message."""

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from lamina.dead_letters import Failure, release, replayed
from lamina.envelope import encode
from lamina.errors import (
    ConfigurationError,
    ConstraintViolated,
    DependencyUnavailable,
    Forgotten,
    ModelAnswerInvalid,
    ModelRefused,
    ModelUnavailable,
    StaleVersion,
)
from lamina.events import CompactionDue, TurnRecorded
from lamina.model import Turn
from lamina.ports import Message
from lamina.testing.clock import StoppedClock
from lamina.testing.publisher import InMemoryPublisher
from lamina.topology import load_topology
from lamina.wiring import Dependency
from lamina.worker import Route, Worker

TURN = Turn.model_validate(
    {
        "app": "shop",
        "user_id": "ana",
        "session_id": "s1",
        "turn_id": "t1",
        "occurred_at": "2026-01-05T10:00:00Z",
        "user": "hello",
    }
)
MESSAGE = encode(TurnRecorded(turn=TURN))


@dataclass
class FakeParts:
    publisher: InMemoryPublisher = field(default_factory=InMemoryPublisher)
    clock: StoppedClock = field(default_factory=StoppedClock)
    down: set[str] = field(default_factory=set[str])

    async def ping(self, dependency: Dependency) -> None:
        if dependency in self.down:
            raise DependencyUnavailable(dependency, "connection refused")


class Service:
    """A worker on an HTTP client, whose handler does what the test says."""

    def __init__(self, outcome: Exception | None = None) -> None:
        self.parts = FakeParts()
        self.handled: list[TurnRecorded] = []
        self.outcome = outcome
        worker = Worker(
            "summarizer", {"summarizer": Route(TurnRecorded, self._handle)}, ("database",), lambda: self.parts
        )
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(_app(worker)), base_url="http://test")

    async def _handle(self, event: TurnRecorded) -> None:
        self.handled.append(event)
        if self.outcome:
            raise self.outcome

    async def push(self, message: Message = MESSAGE, path: str = "/push/summarizer") -> httpx.Response:
        return await self.http.post(path, content=message.data, headers=message.attributes)


def _app(worker: Callable[[Request], Awaitable[Response]]) -> Starlette:
    async def endpoint(request: Request) -> Response:
        return await worker(request)

    return Starlette(routes=[HttpRoute("/{path:path}", endpoint, methods=["GET", "POST"])])


async def test_a_handled_event_is_acknowledged() -> None:
    service = Service()
    assert (await service.push()).status_code == 204
    assert [event.turn for event in service.handled] == [TURN]


@pytest.mark.parametrize(
    "error", [DependencyUnavailable("database", "down"), StaleVersion("3"), ModelUnavailable("429")]
)
async def test_a_transient_failure_is_a_nack_and_parks_nothing(error: Exception) -> None:
    service = Service(error)
    assert (await service.push()).status_code == 503
    assert service.parts.publisher.parked == []


@pytest.mark.parametrize(
    "error", [ModelRefused("safety"), ModelAnswerInvalid("no"), ConstraintViolated("check")]
)
async def test_a_permanent_failure_is_parked_with_its_reason_and_then_acknowledged(error: Exception) -> None:
    service = Service(error)
    assert (await service.push()).status_code == 204
    ((subscription, letter),) = service.parts.publisher.parked
    assert (subscription, letter.data) == ("summarizer", MESSAGE.data)
    assert letter.attributes.items() >= MESSAGE.attributes.items()
    failure = Failure.of(letter.attributes)
    assert (failure.error, failure.reason) == (type(error).__name__, str(error))
    assert (failure.service, failure.version) == ("summarizer", release())
    assert (failure.parked_at, failure.failures) == (service.parts.clock.now(), 1)


async def test_a_parked_message_tells_when_and_as_what_it_was_first_published() -> None:
    service = Service(ModelRefused("safety"))
    metadata = {
        "x-goog-pubsub-message-id": "41",
        "x-goog-pubsub-publish-time": "2026-01-05T10:00:00.250Z",
    }
    await service.push(Message(MESSAGE.data, {**MESSAGE.attributes, **metadata}))
    ((_, letter),) = service.parts.publisher.parked
    failure = Failure.of(letter.attributes)
    assert (failure.message_id, failure.first_seen) == ("41", datetime(2026, 1, 5, 10, 0, 0, 250_000, UTC))


async def test_a_second_failure_is_parked_with_its_count_raised_and_its_beginnings_kept() -> None:
    service = Service(ModelRefused("safety"))
    await service.push(
        Message(MESSAGE.data, {**MESSAGE.attributes, "x-goog-pubsub-message-id": "41"}),
    )
    ((_, first),) = service.parts.publisher.parked
    again = replayed(first, "summarizer")
    await service.push(Message(again.data, {**again.attributes, "x-goog-pubsub-message-id": "97"}))
    failure = Failure.of(service.parts.publisher.parked[1][1].attributes)
    assert (failure.failures, failure.message_id) == (2, "41")


@pytest.mark.parametrize(
    "error",
    [ModelUnavailable("429"), ConfigurationError("set LAMINA_DATABASE_URL"), RuntimeError("a bug")],
)
async def test_the_last_attempt_is_parked_by_the_worker_which_knows_the_reason(error: Exception) -> None:
    service = Service(error)
    last = str(load_topology().delivery.max_delivery_attempts)
    attributes = {**MESSAGE.attributes, "x-goog-pubsub-delivery-attempt": last}
    assert (await service.push(Message(MESSAGE.data, attributes))).status_code == 204
    ((_, letter),) = service.parts.publisher.parked
    failure = Failure.of(letter.attributes)
    assert (failure.error, failure.reason) == (type(error).__name__, str(error))


async def test_what_the_user_had_forgotten_is_dropped_and_kept_nowhere() -> None:
    service = Service(Forgotten("forgotten on 2026-01-06"))
    assert (await service.push()).status_code == 204
    assert service.parts.publisher.parked == []


async def test_a_message_that_cannot_be_parked_is_not_acknowledged() -> None:
    service = Service(ModelRefused("safety"))

    def down() -> None:
        raise DependencyUnavailable("pubsub", "down")

    service.parts.publisher.fail = down
    assert (await service.push()).status_code == 503


@pytest.mark.parametrize(
    "message",
    [
        Message(b"not json", MESSAGE.attributes),
        Message(b"{}", {"ce-specversion": "1.0"}),
        Message(b"{}", {**MESSAGE.attributes, "ce-type": "someone.elses.v1"}),
        Message(b'{"turn": {}}', MESSAGE.attributes),
        Message(b""),
    ],
)
async def test_a_bad_message_is_parked_at_once_as_it_came(message: Message) -> None:
    service = Service()
    assert (await service.push(message)).status_code == 204
    ((_, letter),) = service.parts.publisher.parked
    assert letter.data == message.data
    assert Failure.of(letter.attributes).error == "InvalidEvent"
    assert service.handled == []


async def test_an_event_of_another_topic_is_parked_not_handled() -> None:
    service = Service()
    message = encode(CompactionDue.model_validate({"due_at": "2026-01-05T10:00:00Z"}))
    assert (await service.push(message)).status_code == 204
    assert service.handled == []
    assert "lamina.compaction.due.v1" in Failure.of(service.parts.publisher.parked[0][1].attributes).reason


async def test_a_replay_for_another_subscriber_is_acknowledged_and_ignored() -> None:
    service = Service()
    elsewhere = encode(TurnRecorded(turn=TURN), replay_to="entity-extractor")
    here = encode(TurnRecorded(turn=TURN), replay_to="summarizer")
    assert (await service.push(elsewhere)).status_code == 204
    assert service.handled == []
    assert (await service.push(here)).status_code == 204
    assert len(service.handled) == 1


async def test_a_mistake_of_the_deployment_is_retried_never_parked() -> None:
    service = Service(ConfigurationError("set LAMINA_DATABASE_URL"))
    assert (await service.push()).status_code == 503
    assert service.parts.publisher.parked == []


async def test_an_unforeseen_error_is_not_acknowledged_and_its_words_stay_here() -> None:
    answer = await Service(RuntimeError("what a user wrote")).push()
    assert answer.status_code == 500
    assert "what a user wrote" not in answer.text


async def test_a_push_to_an_unknown_subscription_is_refused() -> None:
    assert (await Service().push(path="/push/other")).status_code == 404


async def test_health_names_the_dependency_that_does_not_answer() -> None:
    service = Service()
    healthy = await service.http.get("/healthz")
    assert (healthy.status_code, healthy.json()["database"]) == (200, "ok")
    service.parts.down.add("database")
    sick = await service.http.get("/healthz")
    assert sick.status_code == 503
    assert "connection refused" in sick.json()["database"]


async def test_whatever_attributes_a_message_has_it_can_be_parked_and_replayed() -> None:
    service = Service(ModelRefused("safety"))
    many = {f"of-the-publisher-{number:03}": "x" for number in range(100)}
    long = {"a-long-value": "é" * 1_000, "n" * 300: "a long name"}
    push = {
        "message": {
            "data": base64.b64encode(MESSAGE.data).decode(),
            "attributes": {**many, **long, **MESSAGE.attributes},
        },
        "subscription": "projects/p/subscriptions/summarizer",
    }
    await service.push(Message(json.dumps(push).encode(), {"content-type": "application/json"}))
    ((_, letter),) = service.parts.publisher.parked
    for message in (letter, replayed(letter, "summarizer")):
        assert len(message.attributes) <= 90
        assert all(len(n.encode()) <= 256 and len(v.encode()) <= 1_024 for n, v in message.attributes.items())
        assert message.attributes.items() >= MESSAGE.attributes.items()
    assert Failure.of(letter.attributes).error == "ModelRefused"
