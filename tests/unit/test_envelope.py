"""One decoder for every way a message arrives, and nothing changes on the way."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.envelope import MAX_MESSAGE_BYTES, Incoming, decode_request, encode, parse, undecoded
from lamina.errors import InvalidEvent, TooLarge
from lamina.events import TurnRecorded
from lamina.model import Turn
from tests.strategies import turns

SURROGATE_ID = b'{"specversion": "1.0", "id": "\\ud800", "type": "t", "source": "s", "data": {}}'

STRUCTURED = {"content-type": "application/cloudevents+json"}


def recorded(value: Any) -> TurnRecorded:
    return TurnRecorded(turn=Turn.model_validate(value))


def push_headers(message: Any) -> dict[str, str]:
    return {
        **{name.title(): value for name, value in message.attributes.items()},
        "X-Goog-Pubsub-Message-Id": "17",
        "X-Goog-Pubsub-Publish-Time": "2026-01-05T10:00:01Z",
    }


def wrapped(message: Any) -> bytes:
    return json.dumps(
        {
            "message": {
                "data": base64.b64encode(message.data).decode(),
                "attributes": message.attributes,
                "messageId": "17",
                "publishTime": "2026-01-05T10:00:01.5Z",
            },
            "subscription": "projects/p/subscriptions/summarizer",
            "deliveryAttempt": 3,
        }
    ).encode()


def structured(message: Any) -> bytes:
    event = {name.removeprefix("ce-"): text for name, text in message.attributes.items() if name[:3] == "ce-"}
    return json.dumps({**event, "data": json.loads(message.data)}).encode()


@given(turns())
def test_any_turn_survives_every_way_of_travelling(value: dict[str, Any]) -> None:
    payload = recorded(value)
    message = encode(payload)
    arrivals = [
        decode_request(push_headers(message), message.data),
        decode_request({"content-type": "application/json"}, wrapped(message)),
        decode_request(STRUCTURED, structured(message)),
        decode_request({}, wrapped(Incoming(structured(message), STRUCTURED))),
    ]
    for incoming in arrivals:
        arrived = parse(incoming)
        assert isinstance(arrived, TurnRecorded)
        assert arrived.turn.to_json() == payload.turn.to_json()
        assert [event.root for event in arrived.turn.events] == value["events"]
        assert incoming.attributes["ce-id"] == message.attributes["ce-id"]


def test_an_id_depends_on_the_turn_and_its_owner_and_on_nothing_else() -> None:
    turn = {"app": "a", "user_id": "u", "session_id": "s", "turn_id": "t", "occurred_at": "2026-01-01T00:00Z"}
    one = recorded({**turn, "user": "x"}).event_id()
    assert recorded({**turn, "user": "y"}).event_id() == one
    assert recorded({**turn, "user": "x", "user_id": "v"}).event_id() != one
    assert recorded({**turn, "user": "x", "app": "au", "user_id": ""[:0] or "w"}).event_id() != one


def test_a_redelivery_is_read_the_same_to_the_last_attribute() -> None:
    message = encode(
        recorded(
            {
                "app": "a",
                "user_id": "u",
                "session_id": "s",
                "turn_id": "t",
                "occurred_at": "2026-01-01T00:00Z",
            }
            | {"user": "x"}
        )
    )
    first, second = (decode_request(push_headers(message), message.data) for _ in range(2))
    assert first == second


def test_what_is_parked_of_a_wrapped_push_is_the_message_and_not_its_wrapping() -> None:
    broken = Incoming(b"[1", {"ce-specversion": "1.0", "lamina-failures": "2"}, ordering_key="s")
    with pytest.raises(InvalidEvent):
        decode_request({}, wrapped(broken))
    kept = undecoded({}, wrapped(broken))
    assert (kept.data, kept.attributes) == (broken.data, broken.attributes)


def test_delivery_metadata_is_read_from_headers_and_from_a_wrapped_push() -> None:
    incoming = decode_request({}, wrapped(Incoming(b"{}", {"k": "v"})))
    assert (incoming.message_id, incoming.delivery_attempt, incoming.attributes) == ("17", 3, {"k": "v"})
    assert incoming.publish_time is not None


@pytest.mark.parametrize("attempt", ["9" * 5000, "-1", "two", "٣" * 5000])
def test_a_delivery_attempt_that_is_no_number_counts_as_unknown(attempt: str) -> None:
    assert decode_request({"x-goog-pubsub-delivery-attempt": attempt}, b"{}").delivery_attempt == 0


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"ce-specversion": "1.0"}, b"{}"),
        ({"ce-specversion": "9.9", "ce-id": "1", "ce-type": "t", "ce-source": "s"}, b"{}"),
        ({"content-type": "application/cloudevents+json"}, b"[]"),
        ({"content-type": "application/cloudevents+json"}, b"{"),
        ({"content-type": "application/cloudevents+json"}, b"[" * 100_000),
        ({}, b'{"message": {"data": "*"}, "subscription": "s"}'),
        ({}, b'{"message": {"data": "", "attributes": 3}, "subscription": "s"}'),
        ({}, b'{"message": '),
        ({"content-type": "application/cloudevents+json"}, SURROGATE_ID),
    ],
)
def test_a_broken_envelope_is_an_invalid_event(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(InvalidEvent):
        decode_request(headers, body)


@given(st.binary(max_size=200), st.dictionaries(st.sampled_from(["ce-type", "content-type"]), st.text()))
def test_no_bytes_and_no_headers_crash_the_decoder(body: bytes, headers: dict[str, str]) -> None:
    with suppress(InvalidEvent):
        parse(decode_request(headers, body))


def test_every_problem_of_a_payload_is_named_at_once() -> None:
    attributes = {"ce-type": TurnRecorded.type}
    body = b'{"turn": {"app": 1, "session_id": "s", "events": [3, {"content": {"parts": 4}}]}}'
    with pytest.raises(InvalidEvent) as caught:
        parse(Incoming(body, attributes))
    text = "\n".join(caught.value.problems)
    assert "at least 1 item" not in text
    for expected in ("turn.app:", "turn.user_id:", "turn.events.0:", "turn.events.1: content.parts"):
        assert expected in text


@pytest.mark.parametrize(
    "body", [b"NaN", b'{"x": 1e999}', b'{"turn": {"events": [{"x": Infinity}]}}', b"\xff", b"[" * 5000]
)
def test_what_is_not_json_is_an_invalid_event(body: bytes) -> None:
    with pytest.raises(InvalidEvent):
        parse(Incoming(body, {"ce-type": TurnRecorded.type}))


def test_a_message_that_pubsub_would_refuse_is_refused_before_it_is_sent() -> None:
    fields = {
        "app": "a",
        "user_id": "u",
        "session_id": "s",
        "turn_id": "t",
        "occurred_at": "2026-01-01T00:00Z",
    }
    encode(recorded({**fields, "user": "x" * (MAX_MESSAGE_BYTES - 2000)}))
    with pytest.raises(TooLarge, match="bytes"):
        encode(recorded({**fields, "user": "x" * MAX_MESSAGE_BYTES}))
