"""What the broker records of its state so that a restart can bring it back."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SavedDelivery:
    """An unsettled, or acknowledged and retained, message of one subscription."""

    subscription: str
    number: int
    failures: int
    acked: bool


@dataclass(slots=True)
class Saved:
    """Everything a state file holds; deliveries come in order of publication."""

    topics: list[bytes] = field(default_factory=list[bytes])
    subscriptions: list[bytes] = field(default_factory=list[bytes])
    messages: dict[int, bytes] = field(default_factory=dict[int, bytes])
    deliveries: list[SavedDelivery] = field(default_factory=list[SavedDelivery])


class Journal:
    """Records nothing and starts empty: the journal of an emulator without a state file."""

    def load(self) -> Saved:
        """What an earlier process left behind."""
        return Saved()

    def put_topic(self, name: str, body: bytes) -> None:
        """Create or replace a topic."""

    def delete_topic(self, name: str) -> None:
        """Forget a topic."""

    def put_subscription(self, name: str, body: bytes) -> None:
        """Create or replace a subscription."""

    def delete_subscription(self, name: str) -> None:
        """Forget a subscription and its deliveries."""

    def add_message(self, number: int, body: bytes) -> None:
        """Keep a message."""

    def delete_message(self, number: int) -> None:
        """Forget a message."""

    def add_delivery(self, subscription: str, number: int) -> None:
        """Note that a subscription waits for a message."""

    def set_failures(self, subscription: str, number: int, failures: int) -> None:
        """Note how often a delivery failed."""

    def set_acked(self, subscription: str, number: int, *, acked: bool) -> None:
        """Note that a retained message is acknowledged, or waits again."""

    def delete_delivery(self, subscription: str, number: int) -> None:
        """Note that a subscription is done with a message."""

    def commit(self) -> None:
        """Make all changes so far survive the process."""

    def close(self) -> None:
        """Commit and release the file."""
