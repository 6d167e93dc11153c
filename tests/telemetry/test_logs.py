"""What a log line holds, and what it never does."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.envelope import encode
from lamina.errors import (
    ConstraintViolated,
    DependencyUnavailable,
    Forgotten,
    InvalidEvent,
    ModelRefused,
    ModelRequestInvalid,
    ModelUnavailable,
    NotFound,
    StaleVersion,
)
from lamina.events import TurnRecorded
from lamina.ports import Message
from lamina.telemetry import declared, log, told, user_digest
from lamina.testing.telemetry import logged, recording
from lamina.turns import complete_turn
from tests.telemetry.services import TURN, WORKERS, Services

MARK = "Zebedäus-42"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def spoken(text: str, **fields: Any) -> dict[str, Any]:
    return {**TURN, "user_id": f"{MARK}@example.com", "user": f"{MARK} {text}", **fields}


async def test_a_line_tells_where_in_which_trace_and_about_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    services = Services(fail=ModelRefused("safety"))
    message = encode(TurnRecorded(turn=complete_turn(TURN)), **{"ce-traceparent": PARENT})
    with recording() as seen, logged() as lines:
        await services.push("summarizer", message)
    (line,) = lines.parsed
    context = seen.span("process summarizer").context
    assert context is not None
    del line["time"]
    assert line == {
        "severity": "ERROR",
        "message": "parked: safety",
        "service": "summarizer",
        "subscription": "summarizer",
        "event_id": message.attributes["ce-id"],
        "event_type": TurnRecorded.type,
        "app": "shop",
        "user": user_digest("shop", "ana@example.com"),
        "session": complete_turn(TURN).session.digest,
        "turn_id": "t1",
        "error_type": "ModelRefused",
        "logging.googleapis.com/trace": "projects/my-project/traces/0af7651916cd43dd8448eb211c80319c",
        "logging.googleapis.com/spanId": f"{context.span_id:016x}",
        "logging.googleapis.com/trace_sampled": True,
    }


async def test_a_line_names_the_trace_of_a_message_with_tracing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    message = encode(TurnRecorded(turn=complete_turn(TURN)), **{"ce-traceparent": PARENT})
    with logged() as lines:
        await Services(fail=ModelUnavailable("429")).push("summarizer", message)
    (line,) = lines.parsed
    assert line["logging.googleapis.com/trace"] == "0af7651916cd43dd8448eb211c80319c"


async def test_after_an_event_nothing_of_it_is_in_the_next_line() -> None:
    with logged() as lines:
        await Services(fail=ModelUnavailable("429")).push(
            "summarizer", encode(TurnRecorded(turn=complete_turn(TURN)))
        )
        log.info("idle")
    assert lines.parsed[-1].keys() == {"severity", "time", "message"}


def test_the_users_digest_is_keyed_and_does_not_mix_two_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = user_digest("shop", "ana")
    assert len(plain) == 32
    assert plain == user_digest("shop", "ana")
    assert len({plain, user_digest("sho", "pana"), user_digest("shop", "bob"), user_digest("x", "ana")}) == 4
    monkeypatch.setenv("LAMINA_LOG_KEY", "secret")
    assert user_digest("shop", "ana") != plain


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DependencyUnavailable("valkey", "Connection refused"), "valkey is unavailable: Connection refused"),
        (StaleVersion("summary 3 is not the next one"), "summary 3 is not the next one"),
        (Forgotten("turn t1 was forgotten"), "turn t1 was forgotten"),
        (InvalidEvent(["turn.app: Field required"]), "turn.app: Field required"),
        (InvalidEvent(["app: Missing", "ce-type: 'me' is no one"]), "app: Missing; ce-type: …"),
        (InvalidEvent(["body: is not a CloudEvent: cannot parse me"]), "body: is not a CloudEvent"),
        (InvalidEvent(["body: is not JSON: an object has the name 'it's me' twice"]), "body: is not JSON"),
        (ConstraintViolated('22P02: invalid input for json: "me"'), "22P02"),
        (ModelRequestInvalid("Gemini answered 400: me"), "Gemini answered 400"),
        (ModelUnavailable("Gemini answered 503 UNAVAILABLE: me"), "Gemini answered 503 UNAVAILABLE"),
        (NotFound("no part 'me' and 'me', it doesn't exist"), "no part …"),
        (KeyError("me"), "KeyError"),
    ],
)  # fmt: skip
def test_of_an_error_a_log_says_what_helps_and_nothing_that_a_message_holds(
    error: Exception, words: str
) -> None:
    assert told(error).startswith(words)
    assert "me" not in told(error).split()


ERRORS = st.sampled_from(
    [
        None,
        RuntimeError(MARK),
        KeyError(MARK),
        ConstraintViolated(f"23514: new row {MARK} violates"),
        ModelRequestInvalid(f"Gemini answered 400: {MARK}"),
        ModelUnavailable(f"Gemini answered 503: {MARK}"),
        InvalidEvent([f"turn.app: {MARK!r} is not"]),
        NotFound(f"no part {MARK!r}"),
        DependencyUnavailable("pubsub", f'"{MARK}" failed'),
    ]
)


@given(
    error=ERRORS,
    attempt=st.sampled_from(["1", "10"]),
    text=st.text(max_size=40),
    mangle=st.sampled_from(["", "cut", "type", "plain", "specversion", "twice"]),
    worker=st.sampled_from(WORKERS),
)
async def test_no_line_holds_what_a_user_wrote_nor_who_it_was(
    error: Exception | None, attempt: str, text: str, mangle: str, worker: str
) -> None:
    cause = error
    if isinstance(error, RuntimeError):
        cause = RuntimeError(f"{MARK} again")
        cause.__cause__ = ValueError(MARK)
    services = Services(fail=cause)
    message = encode(TurnRecorded(turn=complete_turn(spoken(text))))
    match mangle:
        case "cut":
            message = Message(message.data[:-9], message.attributes)
        case "type":
            message = Message(
                message.data, {**message.attributes, "ce-type": "x" + MARK.encode().hex() + "'"}
            )
        case "plain":
            message = Message(json.dumps(spoken(text)).encode())
        case "specversion":
            structured = {"content-type": "application/cloudevents+json"}
            message = Message(json.dumps([MARK]).encode(), structured)
        case "twice":
            message = Message(f'{{"{MARK}": 1, "{MARK}": 2}}'.encode(), message.attributes)
        case _:
            pass
    with logged() as lines:
        await services.push(worker, message, {"x-goog-pubsub-delivery-attempt": attempt})
    written = lines.getvalue()
    for line in lines.parsed:
        assert line.keys() <= declared.LOG_FIELDS.keys()
        assert MARK not in json.dumps(line, ensure_ascii=False)
    assert MARK.encode().hex() not in written
    assert "example.com" not in written


def test_a_strangers_exception_is_told_by_its_class_and_place() -> None:
    def breaks() -> None:
        raise KeyError(MARK)

    with logged() as lines:
        try:
            breaks()
        except KeyError:
            logging.getLogger("somebody.else").exception("Task failed: %r", ValueError(MARK))
    (line,) = lines.parsed
    assert line["error_type"] == "KeyError"
    assert "in breaks" in line["exception"]
    assert line["exception"].endswith("KeyError")
    assert MARK not in json.dumps(line, ensure_ascii=False)
