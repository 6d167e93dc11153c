"""What the code around says: a delivery begins, a question is asked, this is how it ended."""

import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span as LiveSpan
from opentelemetry.trace import Status, StatusCode, get_current_span, set_span_in_context

from lamina.telemetry import declared, setup
from lamina.telemetry.carrying import context_of
from lamina.telemetry.declared import Attribute
from lamina.telemetry.instruments import instruments
from lamina.telemetry.scope import Scope, Subject, current, plain

if TYPE_CHECKING:
    from lamina.api import ContextResponse, SearchResponse
    from lamina.envelope import Incoming
    from lamina.events import Payload

Outcome = Literal["done", "retried", "parked", "forgotten", "unforeseen"]
_PUBSUB = {Attribute.SYSTEM.value: "gcp_pubsub"}
_PROCESS = {**_PUBSUB, Attribute.OPERATION.value: "process"}
_SEND = {**_PUBSUB, Attribute.OPERATION.value: "send"}


@contextmanager
def span(
    kind: declared.Span,
    attributes: Mapping[str, str | int] | None = None,
    context: Context | None = None,
    **names: str,
) -> Generator[LiveSpan]:
    """A span around the body; `names` fill its name's braces. Of an error it says the class alone."""
    live = instruments().tracer.start_span(
        kind.name.format(**names), context=context, kind=kind.kind, attributes=attributes
    )
    if live is get_current_span():  # nothing is recorded, and the trace at hand stays at hand
        yield live
        return
    # By hand: the API's own context manager does as much for twice the time, on each event of each service.
    token = attach(set_span_in_context(live))
    try:
        yield live
    except BaseException as error:
        failed(live, error)
        raise
    finally:
        detach(token)
        live.end()


def failed(live: LiveSpan, error: BaseException) -> None:
    """Mark a span."""
    live.set_attribute(Attribute.ERROR, type(error).__name__)
    live.set_status(Status(StatusCode.ERROR))


def about(thing: object) -> None:
    """Say whose data the event or request at hand is about, once that is known."""
    scope = current.get()
    if scope is None:
        return
    scope.subject = Subject.of(thing)
    live = get_current_span()
    if scope.subject and live.is_recording():
        live.set_attributes(scope.subject.attributes())


@contextmanager
def sending(payload: "Payload") -> Generator[None]:
    """Around a publish."""
    with span(declared.SEND, topic=payload.topic) as live:
        if live.is_recording():
            subject = Subject.of(payload)
            topic = {Attribute.DESTINATION.value: payload.topic, Attribute.EVENT_TYPE.value: payload.type}
            live.set_attributes({**_SEND, **topic, **(subject.attributes() if subject else {})})
        yield


@asynccontextmanager
async def consuming(service: str, subscription: str, incoming: "Incoming") -> AsyncGenerator[None]:
    """Around the handling of one delivery: its span, its measurements, and what logs say of it meanwhile.

    It goes on in the message's trace. A message that brings none gets one whose id follows from the event's,
    so that each delivery of it is found in the same place.
    """
    setup.start(service)
    scope = Scope(service, subscription, incoming.attributes, incoming.first_message_id)
    began = time.perf_counter()
    token = current.set(scope)
    try:
        context = context_of(incoming.attributes)
        with span(declared.PROCESS, context=context, subscription=subscription) as live:
            if live.is_recording():
                live.set_attributes(_delivery(scope, incoming))
            try:
                yield
            finally:
                _delivered(scope, live, time.perf_counter() - began, incoming.first_seen)
    finally:
        current.reset(token)
    await setup.after_work()


def _delivery(scope: Scope, incoming: "Incoming") -> dict[str, str | int]:
    told = {
        Attribute.SUBSCRIPTION.value: scope.subscription,
        Attribute.MESSAGE_ID.value: plain(incoming.message_id),
        Attribute.ATTEMPT.value: incoming.delivery_attempt,
        Attribute.EVENT_ID.value: scope.event_id,
        Attribute.EVENT_TYPE.value: scope.event_type,
    }
    return {**_PROCESS, **{name: value for name, value in told.items() if value}}


def settled(outcome: Outcome, error: BaseException | None = None) -> None:
    """How the delivery at hand ended."""
    scope = current.get()
    if scope:
        scope.outcome, scope.error = outcome, error


def _delivered(scope: Scope, live: LiveSpan, took_s: float, first_seen: datetime | None) -> None:
    to = instruments()
    outcome = scope.outcome or "unforeseen"
    whose = {Attribute.SUBSCRIPTION.value: scope.subscription}
    error = {Attribute.ERROR.value: type(scope.error).__name__} if scope.error else {}
    live.set_attribute(Attribute.OUTCOME, outcome)
    if scope.error and outcome != "forgotten":
        failed(live, scope.error)
    to.events.add(1, {**whose, Attribute.OUTCOME.value: outcome})
    to.process_duration.record(took_s, {**_PROCESS, **whose, Attribute.OUTCOME.value: outcome, **error})
    if outcome == "done" and first_seen:
        to.lag.record(max(0.0, (datetime.now(UTC) - first_seen).total_seconds()), whose)
    if outcome == "parked" and scope.error:
        counted_dead_letter(scope.subscription, scope.error)


def counted_dead_letter(subscription: str, error: BaseException) -> None:
    """Count a parked event. The worker's own are counted by how they settled."""
    told = {Attribute.SUBSCRIPTION.value: subscription, Attribute.ERROR.value: type(error).__name__}
    instruments().dead_letters.add(1, told)


def counted_turn(app: str, *, duplicate: bool) -> None:
    """Count a turn that was taken in."""
    to = instruments()
    outcome = "duplicate" if duplicate else "recorded"
    to.turns.add(1, {Attribute.APP.value: to.app(app), Attribute.OUTCOME.value: outcome})


@contextmanager
def asking(dependency: str) -> Generator[None]:
    """Around a question of the context to a dependency."""
    with span(declared.ASK, dependency=dependency):
        yield


@contextmanager
def assembling() -> Generator[None]:
    """Around choosing and rendering what a context shows."""
    with span(declared.ASSEMBLE):
        yield


def context_answered(answer: "ContextResponse | SearchResponse", *, timed: bool = True) -> None:
    """Measure an answer by what it says of itself."""
    to = instruments()
    for part in answer.degraded:
        to.degraded.add(1, {Attribute.PART.value: part})
    for stage, milliseconds in answer.timings_ms.items() if timed else ():
        to.context_duration.record(milliseconds / 1000, {Attribute.STAGE.value: stage})
