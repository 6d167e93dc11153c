"""What a dead letter says of its failure, whose it is, and how it goes back to the subscriber that failed.

A worker that parks a message writes these attributes. Pub/Sub writes its own when it gives up on a message
that no worker answered for: `Failure.of` reads both kinds.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version as version_of_distribution
from typing import Any, cast

from lamina.moments import moment_of
from lamina.ports import Message
from lamina.topology import REPLAY_ATTRIBUTE

PREFIX = "lamina-"
"""Of every attribute that Lamina itself adds to a message."""
FIRST_SEEN = f"{PREFIX}first-seen"
"""When the broker first had the message (RFC 3339). Stays through parking and replay."""
MESSAGE_ID = f"{PREFIX}message-id"
"""The message's first id: what a publisher left out is derived from it. Stays as well."""
FAILURES = f"{PREFIX}failures"
"""How often the message has become a dead letter. Stays as well."""
EXHAUSTED = "DeliveryAttemptsExhausted"
"""The error of a message that Pub/Sub gave up on: no worker was there to say why."""

_NAMES = ("app", "user_id", "project_id", "session_id", "turn_id")
_PUBSUB = "CloudPubSubDeadLetter"
_ATTRIBUTE_BYTES = 1024
_NAME_BYTES = 256
_ATTRIBUTES = 90
"""Of the hundred that Pub/Sub allows; it adds some to a dead letter of its own."""
_MEANT = ("ce-", "content-type", PREFIX, REPLAY_ATTRIBUTE)
_LASTING = (FIRST_SEEN, MESSAGE_ID, FAILURES)


@cache
def release() -> str:
    """The version of Lamina that runs here."""
    return version_of_distribution("lamina")


@dataclass(frozen=True)
class Failure:
    """Why a message is a dead letter."""

    error: str
    """The class of the error in `lamina.errors`, or EXHAUSTED: what dead letters are grouped by."""
    reason: str
    """The error's own words."""
    service: str
    version: str = ""
    """The release of Lamina that gave up."""
    first_seen: datetime | None = None
    parked_at: datetime | None = None
    trace_id: str = ""
    """32 hexadecimal digits, where the message was part of a trace."""
    failures: int = 1
    """How often the message has become a dead letter, this time included."""
    message_id: str = ""
    """The message's first id."""

    @classmethod
    def because(cls, error: Exception, *, service: str, parked_at: datetime, **more: Any) -> "Failure":
        """Of an error in this release. `more`: what is known of the message, by the fields' names."""
        return cls(type(error).__name__, str(error), service, release(), parked_at=parked_at, **more)

    def attributes(self) -> dict[str, str]:
        """What says so on a message: ASCII, since it becomes headers, and cut to what Pub/Sub allows."""
        values = {
            "error": self.error,
            "reason": self.reason,
            "service": self.service,
            "version": self.version,
            "first-seen": _text(self.first_seen),
            "parked-at": _text(self.parked_at),
            "trace": self.trace_id,
            "failures": str(self.failures),
            "message-id": self.message_id,
        }
        return {f"{PREFIX}{name}": _attribute(value) for name, value in values.items() if value}

    @classmethod
    def of(cls, attributes: Mapping[str, str], *, service: str = "") -> "Failure":
        """What the attributes of a dead letter say. `service` stands in where Pub/Sub moved it by itself."""
        told = failures_told(attributes)
        if f"{PREFIX}error" not in attributes:
            tried = attributes.get(f"{_PUBSUB}SourceDeliveryCount", "?")
            return cls(
                error=EXHAUSTED,
                reason=f"not acknowledged in {tried} attempts, and no worker said why",
                service=service,
                first_seen=first_seen(attributes),
                failures=told + 1,
                message_id=attributes.get(MESSAGE_ID, ""),
            )
        return cls(
            error=attributes[f"{PREFIX}error"],
            reason=attributes.get(f"{PREFIX}reason", ""),
            service=attributes.get(f"{PREFIX}service", service),
            version=attributes.get(f"{PREFIX}version", ""),
            first_seen=first_seen(attributes),
            parked_at=moment_of(attributes.get(f"{PREFIX}parked-at")),
            trace_id=attributes.get(f"{PREFIX}trace", ""),
            failures=max(told, 1),
            message_id=attributes.get(MESSAGE_ID, ""),
        )


@dataclass(frozen=True)
class Owner:
    """Whose turn a message is about, and when it occurred, as far as that can be read; empty where not."""

    app: str = ""
    user_id: str = ""
    project_id: str = ""
    session_id: str = ""
    turn_id: str = ""
    occurred_at: datetime | None = None

    @classmethod
    def of(cls, data: bytes) -> "Owner":
        """Read leniently: a dead letter is often one that breaks its contract."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return cls()
        turn = next((each for each in _candidates(value) if isinstance(each.get("user_id"), str)), None)
        if turn is None:
            return cls()
        names = {name: text for name in _NAMES if isinstance(text := turn.get(name), str)}
        return cls(**names, occurred_at=moment_of(turn.get("occurred_at")))

    def names(self) -> dict[str, str]:
        """The names alone, each empty where it cannot be read."""
        return {name: getattr(self, name) for name in _NAMES}


def failures_told(attributes: Mapping[str, str]) -> int:
    """How often the message says that it has become a dead letter; 0 where it says nothing readable."""
    told = attributes.get(FAILURES, "")
    return int(told) if told.isdecimal() and len(told) < 10 else 0


def first_seen(attributes: Mapping[str, str]) -> datetime | None:
    """When the broker first had the message, where an attribute says so."""
    return moment_of(attributes.get(FIRST_SEEN)) or moment_of(
        attributes.get(f"{_PUBSUB}SourceTopicPublishTime")
    )


def parked(message: Message, failure: Failure) -> Message:
    """The message as a dead letter: what it was, and why it failed this time."""
    return Message(message.data, _fitted({**_plain(message), **failure.attributes()}), message.ordering_key)


def replayed(message: Message, subscription: str) -> Message:
    """The message as it goes back to its topic, for this subscriber alone.

    Its data, event id and ordering key are what they were; it remembers how often it failed and when it was
    first seen, and nothing else of the failure.
    """
    failure = Failure.of(message.attributes)
    lasting = {name: text for name, text in failure.attributes().items() if name in _LASTING}
    attributes = _fitted({**_plain(message), **lasting, REPLAY_ATTRIBUTE: subscription})
    return Message(message.data, attributes, message.ordering_key)


def _plain(message: Message) -> dict[str, str]:
    return {name: text for name, text in message.attributes.items() if not _of_a_failure(name)}


def _fitted(attributes: Mapping[str, str]) -> dict[str, str]:
    """What Pub/Sub takes, with room for what it adds itself: values are cut, and where there are too many
    attributes, those that mean nothing to Lamina are left out."""
    ours = sorted(attributes, key=lambda name: not name.startswith(_MEANT))
    return {
        name: attributes[name].encode()[:_ATTRIBUTE_BYTES].decode("utf-8", "ignore")
        for name in ours[:_ATTRIBUTES]
        if 0 < len(name.encode()) <= _NAME_BYTES
    }


def _of_a_failure(name: str) -> bool:
    return name.startswith((PREFIX, _PUBSUB))


def _text(moment: datetime | None) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds") if moment else ""


def _attribute(value: str) -> str:
    return value.encode("ascii", "backslashreplace")[:_ATTRIBUTE_BYTES].decode("ascii")


def _candidates(value: Any) -> Iterator[dict[str, Any]]:
    """Where a payload, a bare turn or a structured CloudEvent says whose it is, as the services read it."""
    if not isinstance(value, dict):
        return
    outer = cast("dict[str, Any]", value)
    if isinstance(outer.get("turn"), dict) and "session_id" not in outer:
        yield outer["turn"]
    yield outer
    yield from _candidates(outer.get("data"))
