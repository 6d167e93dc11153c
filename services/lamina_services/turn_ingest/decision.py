"""Reads a turn from whatever form it was published in. Pure."""

from datetime import UTC, datetime
from typing import Any, cast

from lamina import strict_json
from lamina.envelope import Incoming
from lamina.errors import InvalidEvent
from lamina.events import TurnPublished
from lamina.model import Turn, derived_id
from lamina.moments import moment_of
from lamina.turns import complete_turn


def turn_of(incoming: Incoming, now: datetime) -> Turn:
    """The turn of a CloudEvent (its data `{"turn": {...}}` or the turn itself), or of bare JSON.

    What the publisher left out is derived from what every delivery of the message has in common, so that a
    redelivery completes it in the same way. InvalidEvent names every field that is wrong.
    """
    if incoming.type not in ("", TurnPublished.type):
        raise InvalidEvent([f"ce-type: {incoming.type!r} is not {TurnPublished.type}"])
    return complete_turn(
        _unwrapped(strict_json.loads(incoming.data)),
        turn_id=_turn_id(incoming),
        at=moment_of(incoming.attributes.get("ce-time", "")) or incoming.first_seen or now,
    )


def published(incoming: Incoming) -> TurnPublished:
    """The payload of a pushed message."""
    return TurnPublished(turn=turn_of(incoming, datetime.now(UTC)))


def _unwrapped(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return fields["turn"] if "turn" in fields and "session_id" not in fields else fields


def _turn_id(incoming: Incoming) -> str | None:
    """An id that every delivery of the message has in common; None over plain HTTP.

    A CloudEvent's source and id name it for good. A message that comes back from a dead-letter topic has a
    new message id, and remembers its first one.
    """
    if incoming.type:
        source, event = incoming.attributes.get("ce-source", ""), incoming.attributes.get("ce-id", "")
        return str(derived_id("turn of event", source, event))
    return f"msg-{incoming.first_message_id}" if incoming.first_message_id else None
