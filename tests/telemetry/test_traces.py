"""One trace from the agent's publish to the last worker, whichever way and however often a message comes."""

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from starlette.requests import Request
from starlette.responses import Response

from lamina.dead_letters import Failure, replayed
from lamina.envelope import encode
from lamina.errors import ModelRefused, ModelUnavailable
from lamina.events import TurnPublished, TurnRecorded
from lamina.model import Turn
from lamina.ports import Message
from lamina.telemetry import user_digest
from lamina.telemetry.http import route_of, served
from lamina.testing.telemetry import logged, recording
from lamina.turns import complete_turn
from tests.telemetry.services import TURN, WORKERS, Services, client_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert parent.context is not None
    return span.parent is not None and span.parent.span_id == parent.context.span_id


def recorded_turn(turn: Turn | None = None) -> Message:
    return encode(TurnRecorded(turn=turn or complete_turn(TURN)))


async def test_one_trace_leads_from_the_agents_publish_to_every_worker() -> None:
    services = Services()
    earlier = {**TURN, "turn_id": "t0", "occurred_at": "2026-01-05T09:00:00Z"}
    await services.buffer.append(complete_turn(earlier))
    with recording() as seen:
        await services.journey()
    assert len({trace_of(span) for span in seen.spans}) == 1
    published, ingested = seen.span("send turns"), seen.span("process turn-ingest")
    recorded = seen.span("send turn.recorded")
    assert (published.parent, published.kind) == (None, SpanKind.PRODUCER)
    assert is_child(ingested, published)
    assert ingested.kind is SpanKind.CONSUMER
    assert is_child(recorded, ingested)
    for worker in WORKERS:
        assert is_child(seen.span(f"process {worker}"), recorded)
    assert is_child(seen.span("summarise scripted"), seen.span("process summarizer"))
    assert is_child(seen.span("extract scripted"), seen.span("process entity-extractor"))
    assert is_child(seen.span("embed_documents hash"), seen.span("process episodic-embedder"))


async def test_a_span_tells_whose_turn_it_is_by_digests() -> None:
    with recording() as seen:
        await Services().journey()
    told = dict(seen.span("process summarizer").attributes or {})
    turn = complete_turn(TURN)
    assert told["lamina.app"] == "shop"
    assert told["user.hash"] == user_digest("shop", turn.user_id)
    assert told["lamina.session"] == turn.session.digest
    assert told["lamina.turn_id"] == "t1"
    assert told["cloudevents.event_id"] == str(TurnRecorded(turn=turn).event_id())
    everything = "".join(span.to_json() for span in seen.spans)
    assert turn.user_id not in everything
    assert TURN["user"] not in everything


async def test_the_same_event_has_the_same_id_and_data_with_tracing_and_without() -> None:
    services = Services()
    await services.agent.publish(TURN)
    untraced = services.message_of(TurnPublished)
    with recording():
        await services.agent.publish(TURN)
    traced = services.message_of(TurnPublished)
    assert "ce-traceparent" in traced.attributes
    assert "traceparent" not in traced.attributes
    assert (traced.data, traced.ordering_key) == (untraced.data, untraced.ordering_key)
    assert traced.attributes.items() - untraced.attributes.items() == {
        ("ce-traceparent", traced.attributes["ce-traceparent"])
    }


async def test_a_redelivery_lands_in_the_trace_that_the_event_brought() -> None:
    services = Services(fail=ModelUnavailable("429"))
    message = recorded_turn()
    message.attributes["ce-traceparent"] = PARENT
    with recording() as seen:
        for attempt in ("1", "2"):
            await services.push("summarizer", message, {"x-goog-pubsub-delivery-attempt": attempt})
    assert {f"{trace_of(span):032x}" for span in seen.spans} == {TRACE}
    assert [dict(span.attributes or {})["lamina.outcome"] for span in seen.spans] == ["retried"] * 2


async def test_a_redelivery_of_an_event_without_a_trace_lands_where_its_first_delivery_did() -> None:
    services = Services(fail=ModelUnavailable("429"))
    other = recorded_turn(complete_turn({**TURN, "turn_id": "t2"}))
    with recording() as seen:
        for message in (recorded_turn(), recorded_turn(), other):
            await services.push("summarizer", message)
    first, second, third = map(trace_of, seen.spans)
    assert first == second != third


async def test_a_parked_event_keeps_its_trace_and_names_it_and_so_does_its_replay() -> None:
    services = Services(fail=ModelRefused("safety"))
    message = recorded_turn()
    message.attributes["ce-traceparent"] = PARENT
    with recording() as seen:
        await services.push("summarizer", message)
        ((_, letter),) = services.publisher.parked
        await services.push("summarizer", replayed(letter, "summarizer"))
    assert letter.attributes["ce-traceparent"] == PARENT
    assert Failure.of(letter.attributes).trace_id == TRACE
    assert {f"{trace_of(span):032x}" for span in seen.spans} == {TRACE}


async def test_without_tracing_a_message_still_carries_on_the_trace_it_came_with() -> None:
    services = Services()
    message = encode(TurnPublished(turn=complete_turn(TURN)), **{"ce-traceparent": PARENT})
    await services.push("turn-ingest", message)
    assert services.message_of(TurnRecorded).attributes["ce-traceparent"] == PARENT
    services.fail = ModelRefused("safety")
    await services.push("summarizer", services.message_of(TurnRecorded))
    ((_, letter),) = services.publisher.parked
    assert Failure.of(letter.attributes).trace_id == TRACE


async def test_a_trace_that_makes_no_sense_is_as_none() -> None:
    services = Services()
    for nonsense in ("", "00-0-0-0", "x" * 2000, "00-" + "0" * 32 + "-b7ad6b7169203331-01"):
        message = encode(TurnPublished(turn=complete_turn(TURN)), **{"ce-traceparent": nonsense})
        assert await services.push("turn-ingest", message) == 204
        assert "ce-traceparent" not in services.message_of(TurnRecorded).attributes


async def test_a_trace_that_googles_own_publisher_began_is_gone_on_with() -> None:
    turn = complete_turn(TURN)
    services = Services()
    await services.push("turn-ingest", encode(TurnPublished(turn=turn), googclient_traceparent=PARENT))
    assert services.message_of(TurnRecorded).attributes["ce-traceparent"] == PARENT


async def test_an_error_leaves_its_class_in_the_span_and_not_its_words() -> None:
    services = Services(fail=RuntimeError("what ana wrote"))
    with recording() as seen:
        await services.push("summarizer", recorded_turn())
    span = seen.span("process summarizer")
    told = dict(span.attributes or {})
    assert (told["lamina.outcome"], told["error.type"]) == ("unforeseen", "RuntimeError")
    assert "what ana wrote" not in span.to_json()


async def test_health_and_metrics_leave_no_span() -> None:
    services = Services()
    with recording() as seen:
        assert (await services.get("summarizer", "/healthz")).status_code == 200
        assert (await services.get("summarizer", "/metrics")).status_code == 200
    assert seen.spans == []
    assert seen.measured() == {}


async def test_an_unforeseen_error_of_a_question_is_answered_and_logged_without_its_words() -> None:
    words = "what ana wrote"

    async def breaks(_: Request) -> Response:
        raise RuntimeError(words)

    with recording() as seen, logged() as lines:
        http = client_of(lambda request: served("context", request, breaks))
        answer = await http.post("/v1/context", json={}, headers={"traceparent": PARENT})
    assert answer.status_code == 500
    span = seen.span("POST /v1/context")
    assert f"{trace_of(span):032x}" == TRACE
    assert dict(span.attributes or {})["error.type"] == "RuntimeError"
    (line,) = lines.parsed
    assert (line["message"], line["service"], line["error_type"]) == ("unforeseen", "context", "RuntimeError")
    assert words not in answer.text + span.to_json() + lines.getvalue()


def test_only_the_http_interfaces_own_paths_are_routes() -> None:
    assert route_of("/v1/context/") == "/v1/context"
    assert route_of("/v1/turns/a/b/receipt") == "/v1/turns/{turn_id}/receipt"
    for path in ("/healthz", "/metrics", "/", "/v1", "/v1/turns/receipt", "/push/summarizer"):
        assert route_of(path) is None
