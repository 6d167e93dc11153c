"""Logs as JSON lines on stderr, the form that Cloud Logging reads. User text is never logged, ids are."""

import json
import logging
import os
import sys
from datetime import UTC, datetime

log = logging.getLogger("lamina")

_FIELDS = ("service", "event_id", "event_type", "subscription", "session", "error_type", "attempt")
"""Fields that a record may carry beside its message (`log.info(..., extra={...})`)."""


class JsonLines(logging.Formatter):
    """One JSON object a line: severity, message, time and the known fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line: dict[str, object] = {
            "severity": record.levelname,
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "message": record.getMessage(),
        }
        line.update({name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure_logging() -> None:
    """Send Lamina's log to stderr, once, at LAMINA_LOG_LEVEL (default INFO)."""
    if log.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(os.environ.get("LAMINA_LOG_LEVEL", "INFO").upper())
    log.propagate = False
