"""Traces, metrics and logs. `declared` holds the name of each; all else here is how they come about.

Without OTEL_* variables nothing is recorded, and the SDK is not even imported. What a message says of its
trace is handed on all the same, so that a service without tracing does not break a trace in two.
"""

from lamina.telemetry.carrying import trace_id, traced
from lamina.telemetry.logs import configure_logging, log, told
from lamina.telemetry.observing import (
    Outcome,
    about,
    asking,
    assembling,
    consuming,
    context_answered,
    counted_dead_letter,
    counted_turn,
    sending,
    settled,
)
from lamina.telemetry.scope import user_digest
from lamina.telemetry.usage import ModelUsage, ObservedEmbedder, ObservedModel

__all__ = [
    "ModelUsage",
    "ObservedEmbedder",
    "ObservedModel",
    "Outcome",
    "about",
    "asking",
    "assembling",
    "configure_logging",
    "consuming",
    "context_answered",
    "counted_dead_letter",
    "counted_turn",
    "log",
    "sending",
    "settled",
    "told",
    "trace_id",
    "traced",
    "user_digest",
]
