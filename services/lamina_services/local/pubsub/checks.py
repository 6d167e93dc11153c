"""The limits of the service: what a request may hold, and what an omitted setting means."""

from collections.abc import Iterable
from typing import Any

from lamina_services.local.pubsub import names
from lamina_services.local.pubsub.faults import InvalidArgument
from lamina_services.local.pubsub.filters import parse_filter
from lamina_services.local.pubsub.http_client import parse_url
from lamina_services.local.pubsub.shapes import (
    Duration,
    PubsubMessage,
    SubscriptionConfig,
    proto_class,
    seconds_of,
)

MAX_REQUEST_BYTES = 10_000_000
MAX_REQUEST_MESSAGES = 1000
MAX_ATTRIBUTES = 100
MAX_KEY_BYTES = 256
MAX_VALUE_BYTES = 1024
MAX_ORDERING_KEY_BYTES = 1024
MIN_ACK_DEADLINE, MAX_ACK_DEADLINE, DEFAULT_ACK_DEADLINE = 10, 600, 10
MIN_ATTEMPTS, MAX_ATTEMPTS, DEFAULT_ATTEMPTS = 5, 100, 5
MAX_BACKOFF, DEFAULT_MIN_BACKOFF, DEFAULT_MAX_BACKOFF = 600, 10, 600
DAY = 86_400
MIN_RETENTION, MAX_RETENTION, DEFAULT_RETENTION = 600, 31 * DAY, 7 * DAY
MIN_EXPIRATION, DEFAULT_EXPIRATION = DAY, 31 * DAY

_ACTIVE = 1


def check_publish(request_bytes: int, messages: Iterable[PubsubMessage]) -> None:
    """Raise InvalidArgument for a publish request that the service would refuse."""
    if request_bytes > MAX_REQUEST_BYTES:
        raise InvalidArgument(f"The request has {request_bytes} bytes; the limit is {MAX_REQUEST_BYTES}.")
    count = 0
    for message in messages:
        count += 1
        _check_message(message)
    if not 1 <= count <= MAX_REQUEST_MESSAGES:
        raise InvalidArgument(f"A request holds 1 to {MAX_REQUEST_MESSAGES} messages, not {count}.")


def _check_message(message: PubsubMessage) -> None:
    attributes = message.attributes
    if not message.data and not attributes:
        raise InvalidArgument("A message needs data or at least one attribute.")
    if len(message.ordering_key.encode()) > MAX_ORDERING_KEY_BYTES:
        raise InvalidArgument(f"The ordering key is longer than {MAX_ORDERING_KEY_BYTES} bytes.")
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidArgument(f"A message has at most {MAX_ATTRIBUTES} attributes, not {len(attributes)}.")
    for key, value in attributes.items():
        if not 1 <= len(key.encode()) <= MAX_KEY_BYTES:
            raise InvalidArgument(f"An attribute key has 1 to {MAX_KEY_BYTES} bytes: {key[:64]!r}.")
        if key.startswith("goog") and not key.startswith("googclient_"):
            raise InvalidArgument(f"An attribute key must not start with 'goog': {key!r}.")
        if len(value.encode()) > MAX_VALUE_BYTES:
            raise InvalidArgument(f"The value of attribute {key!r} is longer than {MAX_VALUE_BYTES} bytes.")


def complete_subscription(config: SubscriptionConfig) -> SubscriptionConfig:
    """A checked copy with the defaults filled in, as the service returns it."""
    checked: SubscriptionConfig = proto_class("Subscription")()
    checked.CopyFrom(config)
    names.subscription_name(checked.name)
    parse_filter(checked.filter)
    checked.state = _ACTIVE
    checked.ack_deadline_seconds = checked.ack_deadline_seconds or DEFAULT_ACK_DEADLINE
    check_ack_deadline(checked.ack_deadline_seconds)
    if checked.push_config.push_endpoint:
        try:
            parse_url(checked.push_config.push_endpoint)
        except ValueError as error:
            raise InvalidArgument(f"Invalid push endpoint: {error}.") from error
    _complete_durations(checked)
    if checked.HasField("dead_letter_policy"):
        policy = checked.dead_letter_policy
        names.topic_name(policy.dead_letter_topic)
        policy.max_delivery_attempts = policy.max_delivery_attempts or DEFAULT_ATTEMPTS
        if not MIN_ATTEMPTS <= policy.max_delivery_attempts <= MAX_ATTEMPTS:
            raise InvalidArgument(f"max_delivery_attempts must be {MIN_ATTEMPTS} to {MAX_ATTEMPTS}.")
    return checked


def check_ack_deadline(seconds: int) -> None:
    """Raise InvalidArgument unless the deadline is one that a subscription or a stream may have."""
    if not MIN_ACK_DEADLINE <= seconds <= MAX_ACK_DEADLINE:
        raise InvalidArgument(
            f"An ack deadline is {MIN_ACK_DEADLINE} to {MAX_ACK_DEADLINE} seconds, not {seconds}."
        )


def check_ack_ids(ack_ids: Any) -> None:
    """Raise InvalidArgument when no ack id is given, or an empty one."""
    if not ack_ids or not all(ack_ids):
        raise InvalidArgument("The request names no ack ids.")


def _complete_durations(config: SubscriptionConfig) -> None:
    if not config.HasField("message_retention_duration"):
        config.message_retention_duration.seconds = DEFAULT_RETENTION
    _check_range(
        "message_retention_duration", config.message_retention_duration, MIN_RETENTION, MAX_RETENTION
    )
    expiration = config.expiration_policy
    if not config.HasField("expiration_policy"):
        expiration.ttl.seconds = DEFAULT_EXPIRATION
    if expiration.HasField("ttl"):
        _check_range("expiration_policy.ttl", expiration.ttl, MIN_EXPIRATION, None)
    if config.HasField("retry_policy"):
        retry = config.retry_policy
        if not retry.HasField("minimum_backoff"):
            retry.minimum_backoff.seconds = DEFAULT_MIN_BACKOFF
        if not retry.HasField("maximum_backoff"):
            retry.maximum_backoff.seconds = DEFAULT_MAX_BACKOFF
        _check_range("retry_policy.minimum_backoff", retry.minimum_backoff, 0, MAX_BACKOFF)
        _check_range("retry_policy.maximum_backoff", retry.maximum_backoff, 0, MAX_BACKOFF)
        if seconds_of(retry.minimum_backoff) > seconds_of(retry.maximum_backoff):
            raise InvalidArgument("retry_policy.minimum_backoff is longer than maximum_backoff.")


def _check_range(field: str, duration: Duration, shortest: int, longest: int | None) -> None:
    seconds = seconds_of(duration)
    if seconds < shortest or (longest is not None and seconds > longest):
        raise InvalidArgument(f"{field} is out of range: {seconds:g} seconds.")
