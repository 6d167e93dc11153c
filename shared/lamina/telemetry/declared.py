"""Every span, metric, attribute and log field there is. A test holds what is emitted against this file.

Names are those of OpenTelemetry's semantic conventions where these have one, else they begin with `lamina.`.
Nothing here ever holds what a user wrote, nor a user's id: see `lamina.telemetry.scope`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from opentelemetry.trace import SpanKind


class Attribute(StrEnum):
    """Keys of what is said about spans and measurements."""

    SYSTEM = "messaging.system"
    OPERATION = "messaging.operation.type"
    DESTINATION = "messaging.destination.name"
    """The topic."""
    SUBSCRIPTION = "messaging.destination.subscription.name"
    MESSAGE_ID = "messaging.message.id"
    ATTEMPT = "messaging.gcp_pubsub.message.delivery_attempt"
    EVENT_ID = "cloudevents.event_id"
    EVENT_TYPE = "cloudevents.event_type"
    METHOD = "http.request.method"
    ROUTE = "http.route"
    STATUS = "http.response.status_code"
    ERROR = "error.type"
    """The class of what was raised; never its words, which may quote a user."""
    APP = "lamina.app"
    USER = "user.hash"
    """See `user_digest`."""
    SESSION = "lamina.session"
    """The session's digest."""
    TURN = "lamina.turn_id"
    OUTCOME = "lamina.outcome"
    STAGE = "lamina.stage"
    PART = "lamina.part"
    MODEL_TASK = "gen_ai.operation.name"
    MODEL = "gen_ai.request.model"
    TOKEN_KIND = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
    """input (not from a cache), cached, output or thought: four kinds that add up."""
    TOKENS_IN = "gen_ai.usage.input_tokens"
    TOKENS_OUT = "gen_ai.usage.output_tokens"


A = Attribute
_WHOSE = frozenset({A.APP, A.USER, A.SESSION, A.TURN})


@dataclass(frozen=True)
class Span:
    """A kind of span: its name, with what varies in braces, and what may be said about it."""

    name: str
    kind: SpanKind
    attributes: frozenset[Attribute]
    events: tuple[str, ...] = ()


SEND = Span(
    "send {topic}", SpanKind.PRODUCER, _WHOSE | {A.SYSTEM, A.OPERATION, A.DESTINATION, A.EVENT_TYPE, A.ERROR}
)
"""A publish, by an agent or by a service."""
PROCESS = Span(
    "process {subscription}",
    SpanKind.CONSUMER,
    _WHOSE
    | {A.SYSTEM, A.OPERATION, A.SUBSCRIPTION, A.MESSAGE_ID, A.ATTEMPT, A.EVENT_ID, A.EVENT_TYPE}
    | {A.OUTCOME, A.ERROR},
)
"""A delivery of an event to a worker, child of the publish."""
SERVE = Span("{method} {route}", SpanKind.SERVER, _WHOSE | {A.METHOD, A.ROUTE, A.STATUS, A.ERROR})
"""A request of the HTTP interface."""
ASK = Span("ask {dependency}", SpanKind.INTERNAL, frozenset({A.ERROR}))
"""A question of the context to buffer, embedder or database."""
ASSEMBLE = Span("assemble", SpanKind.INTERNAL, frozenset())
"""Choosing and rendering what a context shows."""
MODEL_WORK = Span(
    "{stage} {model}",
    SpanKind.CLIENT,
    frozenset({A.MODEL_TASK, A.MODEL, A.STAGE, A.ERROR}),
    events=("model call",),
)
"""A task given to a model. Each call that it took is an event of the span."""
MODEL_CALL = frozenset({A.OUTCOME, A.TOKENS_IN, A.TOKENS_OUT})
"""What the event says."""

SPANS = (SEND, PROCESS, SERVE, ASK, ASSEMBLE, MODEL_WORK)


ROUTES = ("/v1/turns", "/v1/context", "/v1/search", "/v1/fetch")
"""The HTTP interface, as `http.route`."""
RECEIPT_ROUTE = "/v1/turns/{turn_id}/receipt"


@dataclass(frozen=True)
class Metric:
    """An instrument."""

    name: str
    kind: Literal["counter", "histogram"]
    unit: str
    """UCUM; what is counted stands in braces."""
    description: str
    attributes: frozenset[Attribute]
    buckets: tuple[float, ...] = ()


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)

TURNS = Metric(
    "lamina.turns",
    "counter",
    "{turn}",
    "Turns taken in; outcome is recorded or duplicate.",
    frozenset({A.APP, A.OUTCOME}),
)
EVENTS = Metric(
    "lamina.events",
    "counter",
    "{event}",
    "Deliveries to workers; outcome is done, retried, parked, forgotten or unforeseen.",
    frozenset({A.SUBSCRIPTION, A.OUTCOME}),
)
PROCESS_DURATION = Metric(
    "messaging.process.duration",
    "histogram",
    "s",
    "How long a worker was at an event.",
    frozenset({A.SYSTEM, A.OPERATION, A.SUBSCRIPTION, A.OUTCOME, A.ERROR}),
    _SECONDS,
)
LAG = Metric(
    "lamina.event.lag",
    "histogram",
    "s",
    "From the first publish of an event until a worker was done with it.",
    frozenset({A.SUBSCRIPTION}),
    _LONG_SECONDS,
)
DEAD_LETTERS = Metric(
    "lamina.dead_letters",
    "counter",
    "{letter}",
    "Events parked, by the error that led to it.",
    frozenset({A.SUBSCRIPTION, A.ERROR}),
)
REQUEST_DURATION = Metric(
    "http.server.request.duration",
    "histogram",
    "s",
    "How long the HTTP interface took to answer.",
    frozenset({A.METHOD, A.ROUTE, A.STATUS, A.ERROR}),
    _SECONDS,
)
CONTEXT_DURATION = Metric(
    "lamina.context.duration",
    "histogram",
    "s",
    "How long a context took, by stage: buffer, embed, memory, assemble and total.",
    frozenset({A.STAGE}),
    _SECONDS,
)
DEGRADED = Metric(
    "lamina.context.degraded",
    "counter",
    "{context}",
    "Contexts and searches that had to do without a part: buffer, memory or vectors.",
    frozenset({A.PART}),
)
MODEL_CALLS = Metric(
    "lamina.model.calls",
    "counter",
    "{call}",
    "Calls of a model; outcome is ok or failed. A call that is tried again inside its client counts once.",
    frozenset({A.APP, A.STAGE, A.MODEL, A.OUTCOME}),
)
MODEL_TOKENS = Metric(
    "lamina.model.tokens",
    "counter",
    "{token}",
    "Tokens that these calls were billed for, failed ones included.",
    frozenset({A.APP, A.STAGE, A.MODEL, A.OUTCOME, A.TOKEN_KIND}),
)
MODEL_COST = Metric(
    "lamina.model.cost",
    "counter",
    "USD",
    "What these tokens cost by LAMINA_MODEL_PRICES; a model without a price adds nothing.",
    frozenset({A.APP, A.STAGE}),
)
MODEL_DURATION = Metric(
    "gen_ai.client.operation.duration",
    "histogram",
    "s",
    "How long a task took a model, all its calls together.",
    frozenset({A.MODEL_TASK, A.MODEL, A.STAGE, A.ERROR}),
    _SECONDS,
)

METRICS = (
    *(TURNS, EVENTS, PROCESS_DURATION, LAG, DEAD_LETTERS),
    *(REQUEST_DURATION, CONTEXT_DURATION, DEGRADED),
    *(MODEL_CALLS, MODEL_TOKENS, MODEL_COST, MODEL_DURATION),
)

MOST_APPS = 100
"""Apps that one process tells apart in its metrics; all further ones are OTHER_APPS."""
OTHER_APPS = "other"


LOG_FIELDS = {
    "severity": "DEBUG, INFO, WARNING, ERROR or CRITICAL",
    "time": "RFC 3339, in UTC",
    "message": "what happened",
    "service": "which service says so",
    "subscription": "whose event it is about",
    "event_id": "the CloudEvent's id, where it is a UUID",
    "event_type": "the CloudEvent's type, where it is one of Lamina's",
    "app": "the app",
    "user": "keyed one-way digest of app and user: see `user_digest`",
    "session": "digest of app, user and session; also the message's ordering key",
    "turn_id": "the turn",
    "error_type": "the class of the error that the message tells of",
    "exception": "where an unforeseen error arose, without its own words",
    "logging.googleapis.com/trace": "the trace: projects/P/traces/ID, or its bare id without a project",
    "logging.googleapis.com/spanId": "the span",
    "logging.googleapis.com/trace_sampled": "whether the trace is kept",
}
"""Every field of a log line, and what it holds."""
