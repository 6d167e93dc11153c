"""The parts of a backlog: a message, its delivery to one subscription, the lane it waits in, who takes it."""

from collections import deque
from dataclasses import dataclass, field

from lamina_services.local.pubsub.shapes import PubsubMessage


@dataclass(slots=True, eq=False)
class Message:
    """A published message, shared by all subscriptions that hold it."""

    number: int
    """Rank in the order of publication; `str(number)` is the message id."""
    body: PubsubMessage
    published_ns: int
    """Nanoseconds since the epoch."""
    size: int
    """Serialised bytes."""
    holders: int = 0
    """How many subscriptions still need it."""


class Consumer:
    """Someone who takes deliveries and has limited room for them: a pull call, a stream or a pusher.

    `sticky`: while it holds messages of an ordering key, later ones of that key go to it as well (streams).
    `one_per_lane`: it never holds two messages of one ordering key (push).
    """

    def __init__(
        self,
        *,
        max_messages: int = 0,
        max_bytes: int = 0,
        sticky: bool = False,
        one_per_lane: bool = False,
    ) -> None:
        """A limit of 0 means no limit; a single message may exceed `max_bytes`."""
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.sticky = sticky
        self.one_per_lane = one_per_lane
        self.held_messages = 0
        self.held_bytes = 0
        self.ready: deque[Lane] = deque()

    def has_room(self) -> bool:
        """Whether one more delivery fits."""
        return not (
            (self.max_messages > 0 and self.held_messages >= self.max_messages)
            or (self.max_bytes > 0 and self.held_bytes >= self.max_bytes)
        )

    def take(self, delivery: "Delivery") -> None:
        """Count a delivery as held."""
        self.held_messages += 1
        self.held_bytes += delivery.message.size

    def release(self, delivery: "Delivery") -> None:
        """Count a delivery as gone."""
        self.held_messages -= 1
        self.held_bytes -= delivery.message.size


@dataclass(slots=True, eq=False)
class Delivery:
    """A message on its way to one subscription, until it is settled."""

    message: Message
    lane: "Lane"
    failures: int = 0
    """Nacks and expired deadlines so far."""
    ack_id: str = ""
    """Names the current lease; empty while there is none."""
    deadline: float = 0.0
    consumer: Consumer | None = None


@dataclass(slots=True, eq=False)
class Lane:
    """Deliveries that must stay in order: those of one ordering key, or a single one without a key."""

    key: str
    pending: deque[Delivery] = field(default_factory=deque[Delivery])
    outstanding: list[Delivery] = field(default_factory=list[Delivery])
    """Handed out in this order. An acknowledged one stays until those before it are acknowledged too."""
    owner: Consumer | None = None
    """Who holds the outstanding ones."""
    not_before: float = 0.0
    """A backoff blocks the whole lane until then."""
    queue: object = None
    """The queue in which the lane waits to be served, if it does."""
