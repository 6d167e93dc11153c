"""Whose turn a dead letter is about, and what it says of its failure. Pure."""

from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lamina.dead_letters import Failure, Owner
from lamina.envelope import Incoming
from lamina.model import Identifier, Moment
from lamina.ports import IndexedLetter
from lamina.text import storable

_IDENTIFIER = TypeAdapter[str](Identifier)
_MOMENT = TypeAdapter[datetime](Moment)
_MOST_FAILURES = 1_000_000


def letter_of(incoming: Incoming, subscription: str, service: str, now: datetime) -> IndexedLetter | None:
    """What to index of a dead letter of this subscription; None where it names no turn of a user.

    The turn may be invalid in every other respect: that may be why it is a dead letter.
    """
    who = _names(incoming)
    if who is None:
        return None
    failure = Failure.of(incoming.attributes, service=service)
    parked_at = _moment(failure.parked_at) or _moment(incoming.publish_time) or now
    return IndexedLetter(
        **who,
        subscription=subscription,
        error=storable(failure.error),
        reason=storable(failure.reason),
        failures=min(failure.failures, _MOST_FAILURES),
        service=storable(failure.service),
        parked_at=min(parked_at, now),  # a clock that is ahead must not outlive later letters
        first_seen=_moment(failure.first_seen),
        trace_id=storable(failure.trace_id),
        event_id=storable(incoming.attributes.get("ce-id", "")),
    )


def _names(incoming: Incoming) -> dict[str, Any] | None:
    """`app`, `user_id` and `turn_id` of what should be a turn; and, where it has them, the other three."""
    owner = Owner.of(incoming.data)
    names = {name: _name(text) for name, text in owner.names().items()}
    if not (names["app"] and names["user_id"] and names["turn_id"]):
        return None
    return {**names, "occurred_at": _moment(owner.occurred_at)}


def _name(value: Any) -> str:
    """An identifier; empty where the value is none that anybody could ask for."""
    try:
        return _IDENTIFIER.validate_python(value, strict=True)
    except ValidationError:
        return ""


def _moment(value: Any) -> datetime | None:
    """A time that the database can hold."""
    try:
        return _MOMENT.validate_python(value) if value else None
    except ValidationError:
        return None
