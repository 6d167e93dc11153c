"""The protobuf classes of the API and, for the type checker, the fields of them that the emulator reads.

The classes are made at run time by the client library, so their types are unknown to a type checker; the
protocols below name what is used and nothing more.
"""

# ruff: noqa: D102, N802 - the methods are protobuf's own, named and documented there

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol, cast

import google.pubsub_v1.types as _types


class Proto(Protocol):
    """What every protobuf message can do."""

    def SerializeToString(self) -> bytes: ...
    def CopyFrom(self, other: Any) -> None: ...
    def ByteSize(self) -> int: ...
    def HasField(self, field_name: str) -> bool: ...
    def ClearField(self, field_name: str) -> None: ...


class Duration(Proto, Protocol):
    """Seconds and nanoseconds."""

    seconds: int
    nanos: int


class Timestamp(Duration, Protocol):
    """Seconds and nanoseconds since the epoch."""

    def FromNanoseconds(self, nanos: int) -> None: ...
    def ToNanoseconds(self) -> int: ...
    def ToJsonString(self) -> str: ...


class PubsubMessage(Proto, Protocol):
    """One message as it travels."""

    data: bytes
    message_id: str
    ordering_key: str

    @property
    def attributes(self) -> MutableMapping[str, str]: ...
    @property
    def publish_time(self) -> Timestamp: ...


class NoWrapper(Proto, Protocol):
    """The choice of an unwrapped push."""

    write_metadata: bool


class PushConfig(Proto, Protocol):
    """Where and how to push; an empty endpoint means pull."""

    push_endpoint: str

    @property
    def no_wrapper(self) -> NoWrapper: ...


class RetryPolicy(Proto, Protocol):
    """Bounds of the exponential backoff."""

    @property
    def minimum_backoff(self) -> Duration: ...
    @property
    def maximum_backoff(self) -> Duration: ...


class DeadLetterPolicy(Proto, Protocol):
    """Where a message goes that failed too often."""

    dead_letter_topic: str
    max_delivery_attempts: int


class ExpirationPolicy(Proto, Protocol):
    """How long an idle subscription lives; an absent ttl means for ever."""

    @property
    def ttl(self) -> Duration: ...


class TopicConfig(Proto, Protocol):
    """A topic's settings."""

    name: str


class SubscriptionConfig(Proto, Protocol):
    """A subscription's settings."""

    name: str
    topic: str
    ack_deadline_seconds: int
    retain_acked_messages: bool
    enable_message_ordering: bool
    enable_exactly_once_delivery: bool
    filter: str
    state: int

    @property
    def push_config(self) -> PushConfig: ...
    @property
    def retry_policy(self) -> RetryPolicy: ...
    @property
    def dead_letter_policy(self) -> DeadLetterPolicy: ...
    @property
    def expiration_policy(self) -> ExpirationPolicy: ...
    @property
    def message_retention_duration(self) -> Duration: ...


def proto_class(name: str) -> Any:
    """The protobuf class behind a type of the client library, such as `PublishRequest`."""
    wrapper: Any = getattr(_types, name)
    return wrapper.pb()


new_message = cast("Callable[..., PubsubMessage]", proto_class("PubsubMessage"))
new_topic = cast("Callable[..., TopicConfig]", proto_class("Topic"))
new_subscription = cast("Callable[..., SubscriptionConfig]", proto_class("Subscription"))


def parse_message(body: bytes) -> PubsubMessage:
    """The message whose serialised form is `body`."""
    return proto_class("PubsubMessage").FromString(body)


def parse_topic(body: bytes) -> TopicConfig:
    """The topic settings whose serialised form is `body`."""
    return proto_class("Topic").FromString(body)


def parse_subscription(body: bytes) -> SubscriptionConfig:
    """The subscription settings whose serialised form is `body`."""
    return proto_class("Subscription").FromString(body)


def seconds_of(duration: Duration) -> float:
    """A duration in seconds."""
    return duration.seconds + duration.nanos / 1e9
