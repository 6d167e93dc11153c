"""Completes a turn whose publisher left out what can be filled in."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from lamina.envelope import validate
from lamina.errors import InvalidEvent
from lamina.ids import uuid7
from lamina.model import Turn

MAX_EVENTS = 10_000
"""Events of a turn, and parts of an event: a turn is one exchange. What reads it does some work for each."""


def complete_turn(value: Any, *, turn_id: str | None = None, at: datetime | None = None) -> Turn:
    """The turn of a JSON value. InvalidEvent names every field that is wrong.

    A missing `turn_id` becomes the one given here, else a new UUIDv7. A missing `occurred_at` becomes the
    earliest event's timestamp (seconds since 1970, as ADK writes them), else `at`, else now.
    """
    if not isinstance(value, Mapping):
        raise InvalidEvent(["body: a turn is a JSON object"])
    fields = dict(cast(Mapping[str, Any], value))
    _check_counts(fields.get("events"))
    if fields.get("turn_id") is None:
        fields["turn_id"] = turn_id or str(uuid7())
    if fields.get("occurred_at") is None:
        fields["occurred_at"] = _earliest(fields.get("events")) or at or datetime.now(UTC)
    return validate(Turn, fields)


def _check_counts(events: Any) -> None:
    """Refuse what would be costly even to validate."""
    if not isinstance(events, list):
        return
    found = cast(list[Any], events)
    if len(found) > MAX_EVENTS:
        raise InvalidEvent([f"events: has {len(found):,} events; at most {MAX_EVENTS:,} are taken"])
    for index, event in enumerate(found):
        if len(parts := _parts(event)) > MAX_EVENTS:
            where = f"events.{index}: content.parts"
            raise InvalidEvent([f"{where}: has {len(parts):,} parts; at most {MAX_EVENTS:,} are taken"])


def _parts(event: Any) -> list[Any]:
    content = cast(dict[str, Any], event).get("content") if isinstance(event, dict) else None
    parts = cast(dict[str, Any], content).get("parts") if isinstance(content, dict) else None
    return cast(list[Any], parts) if isinstance(parts, list) else []


def _earliest(events: Any) -> datetime | None:
    if not isinstance(events, list):
        return None
    stamps = [
        cast(dict[str, Any], event).get("timestamp")
        for event in cast(list[Any], events)
        if isinstance(event, dict)
    ]
    seconds = [s for s in stamps if isinstance(s, int | float) and not isinstance(s, bool) and 0 < s < 1e11]
    return datetime.fromtimestamp(min(seconds), UTC) if seconds else None
