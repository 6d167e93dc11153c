"""turn-ingest: every form a turn may come in, what is filled in, and what a failure leaves behind."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from lamina.envelope import decode_request, encode
from lamina.errors import DependencyUnavailable, InvalidEvent, TooLarge
from lamina.events import TurnPublished, TurnRecorded
from lamina.model import SessionKey, Summary, Turn
from lamina.testing.buffer import InMemoryBuffer
from lamina.testing.publisher import InMemoryPublisher
from lamina_services.turn_ingest.decision import published, turn_of
from lamina_services.turn_ingest.handler import ingest

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SESSION = SessionKey(app="shop", user_id="ana", session_id="s1")
SAID = {
    "author": "user",
    "timestamp": 1772355600.25,
    "content": {"role": "user", "parts": [{"text": "hola"}]},
}
TURN: dict[str, Any] = {
    **SESSION.model_dump(),
    "turn_id": "t1",
    "occurred_at": "2026-03-01T09:00:00Z",
    "events": [SAID],
    "a_field_of_a_later_release": {"kept": None},
}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in TURN.items() if name not in names}


def read(body: Any, headers: dict[str, str] | None = None) -> Turn:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return turn_of(decode_request(headers or {}, raw), NOW)


def wrapped(data: Any, message_id: str = "17", **attributes: str) -> dict[str, Any]:
    return {
        "message": {
            "data": base64.b64encode(json.dumps(data).encode()).decode(),
            "attributes": attributes,
            "messageId": message_id,
            "publishTime": "2026-03-01T11:00:00.5Z",
        },
        "subscription": "projects/p/subscriptions/turn-ingest",
    }


BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "e1",
    "ce-source": "//agent",
    "ce-type": TurnPublished.type,
    "content-type": "application/json",
}


# --- the forms -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "application/json"}, {"content-type": "text/plain"}]
)
def test_bare_json_is_a_turn(headers: dict[str, str]) -> None:
    assert read(TURN, headers) == Turn.model_validate(TURN)


@pytest.mark.parametrize("data", [{"turn": TURN}, TURN])
def test_a_binary_cloud_event_holds_a_turn(data: Any) -> None:
    assert read(data, BINARY) == Turn.model_validate(TURN)


@pytest.mark.parametrize("data", [{"turn": TURN}, TURN])
def test_a_structured_cloud_event_holds_a_turn(data: Any) -> None:
    event = {"specversion": "1.0", "id": "e1", "source": "//agent", "type": TurnPublished.type, "data": data}
    assert read(event, {"content-type": "application/cloudevents+json"}) == Turn.model_validate(TURN)


@pytest.mark.parametrize("attributes", [{}, BINARY])
def test_a_wrapped_push_holds_a_turn(attributes: dict[str, str]) -> None:
    assert read(wrapped(TURN, **attributes)) == Turn.model_validate(TURN)


def test_what_our_own_client_publishes_is_read_back_equal() -> None:
    turn = Turn.model_validate(TURN)
    message = encode(TurnPublished(turn=turn))
    assert turn_of(decode_request(message.attributes, message.data), NOW).encode() == turn.encode()


def test_the_short_form_becomes_two_events() -> None:
    short = {**without("events"), "user": "hola", "assistant": "¿qué tal?"}
    assert [event.author for event in read(short).events] == ["user", "agent"]


def test_an_event_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="ce-type: 'lamina\\.turn\\.recorded\\.v1' is not"):
        read({"turn": TURN}, {**BINARY, "ce-type": TurnRecorded.type})


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "body: is not JSON"),
        (b"\xff{}", "body: is not UTF-8"),
        (b"[1]", "a turn is a JSON object"),
        (b'{"turn": 3}', "a turn is a JSON object"),
        (b"[" * 100_000, "body: is nested too deeply"),
        (b'{"x": NaN}', "NaN is not a JSON number"),
        (without("app"), "app: Field required"),
        (without("events"), "events: Field required"),
        ({**TURN, "events": []}, "events: "),
        ({**TURN, "user_id": "a\x00b"}, "user_id: "),
        ({**TURN, "occurred_at": "2026-03-01T09:00:00"}, "occurred_at: "),
        ({**TURN, "turn_id": 7}, "turn_id: "),
        ({**TURN, "events": [{"content": {"parts": "hi"}}]}, "events.0: content.parts: must be a list"),
    ],
)
def test_a_turn_that_breaks_its_contract_is_refused_with_its_problem(body: Any, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        read(body)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(InvalidEvent) as caught:
        read({**without("app", "user_id"), "session_id": ""})
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["app", "user_id", "session_id"]


# --- what is filled in -----------------------------------------------------------------------------


def test_over_plain_http_a_missing_turn_id_is_a_new_uuid7() -> None:
    first, second = read(without("turn_id")), read(without("turn_id"))
    assert first.turn_id != second.turn_id
    assert first.turn_id[14] == "7"


def test_over_pubsub_a_missing_turn_id_is_the_same_on_every_delivery() -> None:
    assert read(wrapped(without("turn_id"))).turn_id == "msg-17"
    unwrapped = {"x-goog-pubsub-message-id": "17", "x-goog-pubsub-publish-time": "2026-03-01T11:00:00Z"}
    assert read(without("turn_id"), unwrapped).turn_id == "msg-17"


def test_a_cloud_event_without_turn_id_keeps_its_id_through_a_dead_letter_topic() -> None:
    first = read(wrapped(without("turn_id"), "17", **BINARY))
    replayed = read(wrapped(without("turn_id"), "99", **BINARY))
    other = read(wrapped(without("turn_id"), "17", **{**BINARY, "ce-id": "e2"}))
    assert first.turn_id == replayed.turn_id != other.turn_id


def test_a_missing_moment_is_the_earliest_event_then_the_envelopes_then_now() -> None:
    untimed = {**SAID, "timestamp": None}
    later = {**SAID, "timestamp": 1772355700}
    bare = without("occurred_at")
    assert read({**bare, "events": [untimed, later, SAID]}).occurred_at == datetime(
        2026, 3, 1, 9, 0, 0, 250_000, tzinfo=UTC
    )
    bare = {**bare, "events": [untimed]}
    published_at = datetime(2026, 3, 1, 11, 0, 0, 500_000, tzinfo=UTC)
    assert read(wrapped(bare, **BINARY, **{"ce-time": "2026-03-01T10:00:00Z"})).occurred_at.hour == 10
    assert read(wrapped(bare, **BINARY, **{"ce-time": "yesterday"})).occurred_at == published_at
    assert read(wrapped(bare)).occurred_at == published_at
    assert read(bare).occurred_at == NOW


def test_a_redelivery_completes_the_turn_in_the_same_way() -> None:
    push = json.dumps(wrapped(without("turn_id", "occurred_at"))).encode()
    assert published(decode_request({}, push)) == published(decode_request({}, push))


# --- recording -------------------------------------------------------------------------------------


@pytest.fixture
def buffer() -> InMemoryBuffer:
    return InMemoryBuffer()


@pytest.fixture
def publisher() -> InMemoryPublisher:
    return InMemoryPublisher()


async def test_a_turn_is_in_the_buffer_and_its_event_is_published(
    buffer: InMemoryBuffer, publisher: InMemoryPublisher
) -> None:
    turn = Turn.model_validate(TURN)
    accepted = await ingest(turn, buffer=buffer, publisher=publisher)
    assert (accepted.turn_id, accepted.duplicate) == ("t1", False)
    assert (await buffer.read(SESSION)).turns == (turn,)
    assert publisher.published == [TurnRecorded(turn=turn)]


async def test_a_delivery_that_died_before_publishing_publishes_when_it_comes_again(
    buffer: InMemoryBuffer, publisher: InMemoryPublisher
) -> None:
    turn = Turn.model_validate(TURN)

    def down() -> None:
        raise DependencyUnavailable("pubsub", "down")

    publisher.fail = down
    with pytest.raises(DependencyUnavailable):
        await ingest(turn, buffer=buffer, publisher=publisher)
    publisher.fail = None
    assert (await ingest(turn, buffer=buffer, publisher=publisher)).duplicate
    assert publisher.published == [TurnRecorded(turn=turn)]
    assert (await buffer.read(SESSION)).turns == (turn,)


async def test_even_a_turn_that_was_trimmed_meanwhile_is_published_again_but_not_stored_again(
    buffer: InMemoryBuffer, publisher: InMemoryPublisher
) -> None:
    turn = Turn.model_validate(TURN)
    await ingest(turn, buffer=buffer, publisher=publisher)
    await buffer.trim(SESSION, ["t1"], Summary(session=SESSION, version=1))
    assert (await ingest(turn, buffer=buffer, publisher=publisher)).duplicate
    assert publisher.published == [TurnRecorded(turn=turn)] * 2
    assert (await buffer.read(SESSION)).turns == ()


async def test_of_two_turns_with_one_id_the_first_is_what_everyone_hears_of(
    buffer: InMemoryBuffer, publisher: InMemoryPublisher
) -> None:
    first = Turn.model_validate(TURN)
    second = Turn.model_validate({**TURN, "events": [{**SAID, "id": "other"}]})
    await ingest(first, buffer=buffer, publisher=publisher)
    assert (await ingest(second, buffer=buffer, publisher=publisher)).duplicate
    assert publisher.published == [TurnRecorded(turn=first)] * 2


async def test_a_turn_too_large_to_publish_is_refused_before_it_is_stored(
    buffer: InMemoryBuffer, publisher: InMemoryPublisher
) -> None:
    huge = {"author": "user", "content": {"parts": [{"inline_data": {"data": "A" * 10_000_000}}]}}
    with pytest.raises(TooLarge):
        await ingest(Turn.model_validate({**TURN, "events": [huge]}), buffer=buffer, publisher=publisher)
    assert not (await buffer.read(SESSION)).known
    assert publisher.published == []


async def test_a_buffer_that_is_down_publishes_nothing(
    buffer: InMemoryBuffer, publisher: InMemoryPublisher
) -> None:
    buffer.down = True
    with pytest.raises(DependencyUnavailable):
        await ingest(Turn.model_validate(TURN), buffer=buffer, publisher=publisher)
    assert publisher.published == []
