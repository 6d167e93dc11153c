"""A dead letter as it lies on a dead-letter topic: the message, why it failed, and whose it is. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from lamina.dead_letters import MESSAGE_ID, Failure, Owner, replayed
from lamina.ports import Message


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
