"""A publisher that remembers, and fails on demand."""

from collections.abc import Callable
from dataclasses import dataclass, field

from lamina.envelope import encode
from lamina.events import Payload
from lamina.ports import Message
from lamina.telemetry import sending, traced


@dataclass
class InMemoryPublisher:
    """Publisher port in memory. `fail`, when set, is called before each send and may raise."""

    published: list[Payload] = field(default_factory=list[Payload])
    messages: list[Message] = field(default_factory=list[Message])
    """Each published payload as it travels."""
    parked: list[tuple[str, Message]] = field(default_factory=list[tuple[str, Message]])
    """Each with the subscription that gave up on it."""
    fail: Callable[[], None] | None = None

    async def publish(self, payload: Payload) -> str:
        """Remember the payload; TooLarge as the real one."""
        with sending(payload):
            message = traced(encode(payload))
            self._maybe_fail()
        self.published.append(payload)
        self.messages.append(message)
        return str(len(self.published))

    async def park(self, subscription: str, message: Message) -> str:
        """Remember the parked message."""
        self._maybe_fail()
        self.parked.append((subscription, message))
        return str(len(self.parked))

    async def ping(self) -> None:
        """Fail as a publish would."""
        self._maybe_fail()

    def _maybe_fail(self) -> None:
        if self.fail is not None:
            self.fail()
