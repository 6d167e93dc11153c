"""The trace's way through Pub/Sub: CloudEvents' Distributed Tracing extension, `ce-traceparent`.

Not plain `traceparent`: where attributes travel as HTTP headers, a front end writes its own over that one.
"""

from collections.abc import Mapping
from dataclasses import replace

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lamina.ports import Message

_PREFIX = "ce-"
_GOOGLE = "googclient_"
"""What Google's own publishers put before the names, where their tracing is on."""
_NAMES = ("traceparent", "tracestate")
_LONGEST_STATE = 512
_w3c = TraceContextTextMapPropagator()


def traced(message: Message) -> Message:
    """The message with the current trace in its attributes; as it is where there is none.

    Data and event id stay what they were: tracing must never make two events of one.
    """
    carrier: dict[str, str] = {}
    _w3c.inject(carrier)
    told = {f"{_PREFIX}{name}": text for name, text in carrier.items() if len(text) <= _LONGEST_STATE}
    return replace(message, attributes={**message.attributes, **told}) if told else message


def context_of(attributes: Mapping[str, str]) -> Context:
    """The trace that a message belongs to; an empty context where it does not say."""
    prefix = _PREFIX if f"{_PREFIX}{_NAMES[0]}" in attributes else _GOOGLE
    carrier = {name: text for name in _NAMES if (text := attributes.get(f"{prefix}{name}"))}
    return _w3c.extract(carrier, Context()) if carrier else Context()


def context_of_headers(headers: Mapping[str, str]) -> Context:
    """The trace that an HTTP request belongs to."""
    carrier = {name: text for name in _NAMES if (text := headers.get(name))}
    return _w3c.extract(carrier, Context()) if carrier else Context()


def trace_id() -> str:
    """The current trace, 32 hexadecimal digits; empty where there is none. Tracing need not be on."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""
