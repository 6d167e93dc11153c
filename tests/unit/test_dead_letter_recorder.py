"""The recorder: whose turn a dead letter is about, whatever is wrong with it; and what it answers."""

import base64
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from lamina.dead_letters import EXHAUSTED, Failure, parked, replayed
from lamina.envelope import Incoming, encode
from lamina.errors import ConstraintViolated
from lamina.events import CompactionDue, TurnPublished, TurnRecorded
from lamina.ports import IndexedLetter, Message
from lamina.testing.clock import StoppedClock
from lamina.testing.publisher import InMemoryPublisher
from lamina.testing.receipts import InMemoryDeadLetterIndex
from lamina.topology import load_topology
from lamina.wiring import Dependency
from lamina.worker import RawRoute, Worker
from lamina_services.dead_letter_recorder.decision import letter_of
from lamina_services.dead_letter_recorder.handler import on_dead_letter
from tests.builders import a_turn

NOW = StoppedClock().moment
TURN = a_turn("ana")
FAILURE = Failure(
    error="ModelRefused",
    reason="the model declined",
    service="summarizer",
    first_seen=NOW - timedelta(hours=2),
    parked_at=NOW - timedelta(hours=1),
    trace_id="0af7651916cd43dd8448eb211c80319c",
    failures=3,
)
LETTER = parked(encode(TurnRecorded(turn=TURN)), FAILURE)
WHO: dict[str, Any] = {"app": "shop", "user_id": "ana", "session_id": "s1", "turn_id": "t1"}


def letter(message: Message = LETTER, **delivery: Any) -> IndexedLetter | None:
    incoming = Incoming(message.data, message.attributes, **delivery)
    return letter_of(incoming, "summarizer", "summarizer", NOW)


def of(value: object, **attributes: str) -> IndexedLetter | None:
    return letter(Message(json.dumps(value).encode(), {**FAILURE.attributes(), **attributes}))


def test_a_parked_turn_tells_whose_it_is_and_why_it_failed() -> None:
    assert letter() == IndexedLetter(
        **WHO,
        subscription="summarizer",
        error="ModelRefused",
        reason="the model declined",
        failures=3,
        service="summarizer",
        parked_at=NOW - timedelta(hours=1),
        first_seen=NOW - timedelta(hours=2),
        trace_id=FAILURE.trace_id,
        event_id=str(TurnRecorded(turn=TURN).event_id()),
    )


def test_what_pubsub_gave_up_on_by_itself_was_parked_when_it_arrived() -> None:
    plain = encode(TurnRecorded(turn=TURN))
    attributes = {**plain.attributes, "CloudPubSubDeadLetterSourceDeliveryCount": "10"}
    found = letter(Message(plain.data, attributes), publish_time=NOW - timedelta(minutes=1))
    assert found is not None
    assert (found.error, found.service, found.failures) == (EXHAUSTED, "summarizer", 1)
    assert found.parked_at == NOW - timedelta(minutes=1)


@pytest.mark.parametrize(
    "value",
    [
        {"turn": {**WHO, "events": "none"}},
        {"turn": {**WHO, "occurred_at": "yesterday"}},
        {**WHO, "user": 5},
        {**WHO, "turn": None},
    ],
)
def test_an_invalid_turn_is_still_attributed(value: object) -> None:
    found = of(value)
    assert found is not None
    assert (found.app, found.user_id, found.session_id, found.turn_id) == tuple(WHO.values())


@pytest.mark.parametrize("session", [None, 5, "", "\x00", "x" * 257])
def test_a_turn_without_a_usable_session_is_attributed_to_none(session: object) -> None:
    found = of({**WHO, "session_id": session})
    assert found is not None
    assert found.session_id == ""


@pytest.mark.parametrize("name", ["app", "user_id", "turn_id"])
@pytest.mark.parametrize("value", [None, 5, "", ["ana"], "a\x00", "\ud800", "x" * 257])
def test_a_letter_that_names_no_turn_of_a_user_is_not_attributed(name: str, value: object) -> None:
    assert of({**WHO, name: value}) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"5", b"\xff", b"[" * 100_000, b'{"turn": []}'])
def test_what_is_no_object_is_not_attributed(data: bytes) -> None:
    assert letter(Message(data, LETTER.attributes)) is None


def test_a_tick_of_the_scheduler_belongs_to_nobody() -> None:
    assert letter(parked(encode(CompactionDue(due_at=NOW)), FAILURE)) is None


def test_a_clock_that_is_ahead_does_not_outlive_later_letters() -> None:
    ahead = replace(FAILURE, parked_at=NOW + timedelta(days=400))
    found = letter(parked(encode(TurnRecorded(turn=TURN)), ahead))
    assert found is not None
    assert found.parked_at == NOW


@given(st.dictionaries(st.sampled_from([*FAILURE.attributes(), "ce-id"]), st.text(max_size=60)))
def test_whatever_the_attributes_say_the_row_can_be_stored(attributes: dict[str, str]) -> None:
    found = of(WHO, **attributes)
    assert found is not None
    assert 1 <= found.failures <= 1_000_000
    assert datetime(1900, 1, 1, tzinfo=UTC) <= found.parked_at <= NOW
    for text in (found.error, found.reason, found.service, found.trace_id, found.event_id):
        assert "\x00" not in text
        text.encode()


# --- over HTTP -------------------------------------------------------------------------------------


@dataclass
class FakeParts:
    publisher: InMemoryPublisher = field(default_factory=InMemoryPublisher)
    clock: StoppedClock = field(default_factory=StoppedClock)

    async def ping(self, dependency: Dependency) -> None:
        return


class Service:
    """The recorder on an HTTP client."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.index = InMemoryDeadLetterIndex()
        self.parts = FakeParts()
        self.fail = fail
        routes = {each.name: RawRoute(partial(self._take, each)) for each in load_topology().recordings}
        worker = Worker("dead-letter-recorder", routes, ("database",), lambda: self.parts)

        async def endpoint(request: Request) -> Response:
            return await worker(request)

        app = Starlette(routes=[HttpRoute("/{path:path}", endpoint, methods=["POST"])])
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")

    async def _take(self, recording: Any, incoming: Incoming) -> None:
        if self.fail:
            raise self.fail
        await on_dead_letter(incoming, recording, index=self.index, clock=self.parts.clock)

    async def push(self, message: Message, subscription: str = "summarizer") -> int:
        wrapped = {
            "message": {"data": base64.b64encode(message.data).decode(), "attributes": message.attributes},
            "subscription": f"projects/p/subscriptions/{subscription}.dead.recorder",
        }
        response = await self.http.post(f"/push/{subscription}.dead.recorder", json=wrapped)
        return response.status_code


async def test_a_letter_of_each_subscription_is_indexed_under_it() -> None:
    service = Service()
    for each in load_topology().subscriptions:
        assert await service.push(LETTER, each.name) == 204
    assert {found.subscription for found in service.index.letters.values()} == {
        each.name for each in load_topology().subscriptions
    }


async def test_a_letter_that_failed_again_after_a_replay_is_indexed() -> None:
    service = Service()
    again = parked(replayed(LETTER, "summarizer"), replace(FAILURE, failures=4, parked_at=NOW))
    assert await service.push(again) == 204
    [found] = service.index.letters.values()
    assert found.failures == 4


async def test_a_letter_whose_envelope_cannot_be_read_is_attributed_by_its_data_or_not_at_all() -> None:
    service = Service()
    broken = {**LETTER.attributes, "ce-specversion": "7.3"}
    assert await service.push(Message(LETTER.data, broken)) == 204
    assert len(service.index.letters) == 1
    assert await service.push(Message(b"\xff", broken)) == 204
    assert len(service.index.letters) == 1


@pytest.mark.parametrize("error", [ConstraintViolated("23514"), ValueError("a defect")])
async def test_its_own_failure_is_refused_and_never_parked_again(error: Exception) -> None:
    service = Service(error)
    published = parked(encode(TurnPublished(turn=TURN)), FAILURE)
    assert await service.push(published, "turn-ingest") >= 500
    assert service.parts.publisher.parked == []


def test_it_is_attributed_to_whom_the_services_take_it_for() -> None:
    told = of({**WHO, "turn": {**WHO, "user_id": "mallory"}})
    assert told
    assert told.user_id == "ana"
