"""Logs as JSON lines on stderr, the form that Cloud Logging reads. What a user wrote is never in them.

An error's own words may quote a message, so they pass through `told`, and a traceback goes without them.
"""

import json
import logging
import os
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from opentelemetry import trace

from lamina.errors import (
    ConstraintViolated,
    InvalidEvent,
    LaminaError,
    ModelRequestInvalid,
    ModelUnavailable,
)
from lamina.telemetry.scope import current

log = logging.getLogger("lamina")

_QUOTED = re.compile(r"""(?<!\w)[bu]?['"](?:.*['"]|.*)""", re.DOTALL)
"""From the first quotation mark to the last."""
_HEAD_ONLY = (ConstraintViolated, ModelRequestInvalid, ModelUnavailable)
"""What follows the colon is a database's or a model's, which may repeat what it was sent."""
_GOOGLE = "logging.googleapis.com/"


class JsonLines(logging.Formatter):
    """One JSON object a line: see `declared.LOG_FIELDS`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        scope = current.get()
        line: dict[str, object] = {
            "severity": record.levelname,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "message": _message(record),
            **(scope.fields() if scope else {}),
            **_trace(),
        }
        for name in ("service", "subscription", "error_type"):
            if value := getattr(record, name, None):
                line[name] = value
        error = next((each for each in _arguments(record) if isinstance(each, BaseException)), None)
        if error is not None:
            line["error_type"] = type(error).__name__
        if record.exc_info and record.exc_info[1]:
            line["error_type"] = type(record.exc_info[1]).__name__
            line["exception"] = _where(record.exc_info[1])
        return json.dumps(line)


def configure_logging() -> None:
    """Send the log to stderr, once: Lamina's at LAMINA_LOG_LEVEL (default INFO), all others' warnings."""
    if log.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(os.environ.get("LAMINA_LOG_LEVEL", "INFO").upper())
    log.propagate = False
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(handler)


def told(error: BaseException) -> str:
    """What a log may say of an error: never what a message holds. Its dead letter has the whole of it."""
    match error:
        case InvalidEvent():
            return "; ".join(_place_and_kind(problem) for problem in error.problems)
        case LaminaError() if isinstance(error, _HEAD_ONLY):
            return unquoted(str(error).partition(":")[0])
        case LaminaError():
            return unquoted(str(error))
        case _:
            return type(error).__name__


def unquoted(text: str) -> str:
    """The text without what stands in quotation marks."""
    return _QUOTED.sub("…", text)


def _place_and_kind(problem: str) -> str:
    """`where: what` up to the colon behind it, where the details begin."""
    return unquoted(":".join(problem.split(":")[:2]))


def _arguments(record: logging.LogRecord) -> tuple[Any, ...]:
    return record.args if isinstance(record.args, tuple) else ()


def _message(record: logging.LogRecord) -> str:
    arguments = _arguments(record)
    if not any(isinstance(each, BaseException) for each in arguments):
        text = record.getMessage()
    else:
        safe = tuple(told(each) if isinstance(each, BaseException) else each for each in arguments)
        text = str(record.msg) % safe
    return text if record.name.split(".")[0] == log.name else unquoted(text)


def _trace() -> dict[str, object]:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    project = os.environ.get("GOOGLE_CLOUD_PROJECT", "")
    prefix = f"projects/{project}/traces/" if project else ""
    return {
        f"{_GOOGLE}trace": prefix + trace.format_trace_id(context.trace_id),
        f"{_GOOGLE}spanId": trace.format_span_id(context.span_id),
        f"{_GOOGLE}trace_sampled": context.trace_flags.sampled,
    }


def _where(error: BaseException) -> str:
    """A traceback as Error Reporting reads it, of classes and places."""
    text: list[str] = []
    chain: BaseException | None = error
    while chain is not None and len(text) < 100:
        frames = traceback.format_tb(chain.__traceback__)
        text = ["Traceback (most recent call last):\n", *frames, f"{type(chain).__name__}\n", *text]
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return "".join(text).rstrip()
