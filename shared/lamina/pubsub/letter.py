"""A dead letter as it lies on a dead-letter topic: the message, why it failed, and whose it is. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Self, cast

from lamina.dead_letters import MESSAGE_ID, Failure, replayed
from lamina.ports import Message


@dataclass(frozen=True)
class Owner:
    """Whose message it is, as far as it can be read; empty where it cannot."""

    app: str = ""
    user_id: str = ""
    project_id: str = ""
    session_id: str = ""
    turn_id: str = ""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Read leniently: a dead letter is often one that breaks its contract."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return cls()
        named = [each for each in _candidates(value) if isinstance(each.get("user_id"), str)]
        found = {field.name: named[0].get(field.name) for field in fields(cls)} if named else {}
        return cls(**{name: text for name, text in found.items() if isinstance(text, str)})


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter."""

    subscription: str
    """The one that failed."""
    message_id: str
    """Its id on the dead-letter topic; the message had another one before."""
    published: datetime | None
    """When it became a dead letter, by the broker's clock."""
    message: Message
    failure: Failure
    owner: Owner

    @classmethod
    def of(
        cls, subscription: str, message: Message, message_id: str, published: datetime | None, service: str
    ) -> Self:
        """Read what a message of the subscription's dead-letter topic says. `service` is the subscriber's."""
        failure = Failure.of(message.attributes, service=service)
        return cls(subscription, message_id, published, message, failure, Owner.of(message.data))

    @property
    def key(self) -> tuple[str, str]:
        """Names this dead letter among all."""
        return self.subscription, self.message_id

    @property
    def event_id(self) -> str:
        """The CloudEvent's id; empty for data without an envelope."""
        return self.message.attributes.get("ce-id", "")

    @property
    def parked_at(self) -> datetime | None:
        """When it became a dead letter: as the worker says, else the broker."""
        return self.failure.parked_at or self.published

    @property
    def again(self) -> Message:
        """The message as it goes back, for the subscriber that failed.

        Where no worker wrote down the message's first id, the dead letter's own stands in: two replays of
        one dead letter must have the same.
        """
        message = replayed(self.message, self.subscription)
        return replace(message, attributes={MESSAGE_ID: self.message_id, **message.attributes})


def _candidates(value: Any) -> Iterator[dict[str, Any]]:
    """Where a payload, a bare turn or a structured CloudEvent says whose it is, as the services read it."""
    if not isinstance(value, dict):
        return
    outer = cast("dict[str, Any]", value)
    if isinstance(outer.get("turn"), dict) and "session_id" not in outer:
        yield outer["turn"]
    yield outer
    yield from _candidates(outer.get("data"))
