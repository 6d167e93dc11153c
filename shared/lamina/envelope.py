"""CloudEvent <-> Pub/Sub message: the only encoder and the only decoder.

Messages travel in CloudEvents' binary mode by its Pub/Sub binding: data as it is, attributes `ce-*`.
A push wraps them in JSON, which also tells the delivery attempt. An unwrapped push is read as well: there the
attributes arrive as HTTP headers, which is CloudEvents' binary HTTP mode.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar, cast

from cloudevents.exceptions import GenericException
from cloudevents.http import from_http  # pyright: ignore[reportUnknownVariableType] - bare Callable in the SDK
from pydantic import BaseModel, ValidationError

from lamina import dead_letters, strict_json
from lamina.errors import InvalidEvent, TooLarge
from lamina.events import PAYLOADS, Payload
from lamina.moments import moment_of
from lamina.ports import Message

Model = TypeVar("Model", bound=BaseModel)

MAX_MESSAGE_BYTES = 10_000_000 - 10_000
"""Pub/Sub's limit, less what a dead letter's attributes add."""

SOURCE = "//lamina"
_METADATA = "x-goog-pubsub-"
_DIGITS = 10
_REQUIRED = ("ce-id", "ce-source", "ce-type")
_KEPT_HEADERS = ("content-type", "replay_to", "googclient_traceparent")


@dataclass(frozen=True)
class Incoming:
    """A message as it reached a service, whichever way it came."""

    data: bytes
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    """`ce-*` and the other attributes of the message."""
    message_id: str = ""
    publish_time: datetime | None = None
    ordering_key: str = ""
    delivery_attempt: int = 0

    @property
    def type(self) -> str:
        """The CloudEvent's type; empty for data without an envelope."""
        return self.attributes.get("ce-type", "")

    @property
    def first_message_id(self) -> str:
        """The id that the message was first published under; a replay has another."""
        return self.attributes.get(dead_letters.MESSAGE_ID) or self.message_id

    @property
    def first_seen(self) -> datetime | None:
        """When the broker first had it."""
        return dead_letters.first_seen(self.attributes) or self.publish_time

    @property
    def message(self) -> Message:
        """What to publish to send it again."""
        return Message(self.data, self.attributes, self.ordering_key)


def encode(payload: Payload, **attributes: str) -> Message:
    """The message of a payload. TooLarge where Pub/Sub would refuse it."""
    data = strict_json.dumps(payload.to_json())
    everything = {
        "ce-specversion": "1.0",
        "ce-id": str(payload.event_id()),
        "ce-type": payload.type,
        "ce-source": SOURCE,
        "content-type": "application/json",
        **attributes,
    }
    size = len(data) + sum(len(name) + len(value) for name, value in everything.items())
    if size > MAX_MESSAGE_BYTES:
        raise TooLarge(f"the message is {size:,} bytes; Pub/Sub carries at most {MAX_MESSAGE_BYTES:,}")
    return Message(data, everything, payload.ordering_key())


def decode_request(headers: Mapping[str, str], body: bytes) -> Incoming:
    """Read a push: binary or structured CloudEvent, wrapped Pub/Sub push, or bare JSON.

    InvalidEvent where an envelope is announced and broken.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    if "ce-specversion" in lower or lower.get("content-type", "").startswith("application/cloudevents"):
        return _checked(_from_cloud_event(lower, body))
    wrapped = _wrapped(body)
    return _checked(_pushed(wrapped) if wrapped else Incoming(body, _kept(lower), **_metadata(lower)))


def undecoded(headers: Mapping[str, str], body: bytes) -> Incoming:
    """The message of a push whose CloudEvent cannot be read: what to park."""
    lower = {name.lower(): value for name, value in headers.items()}
    with suppress(InvalidEvent):
        if "ce-specversion" not in lower and (push := _wrapped(body)):
            return _checked(_from_push(push))
    announced = {name: text for name, text in lower.items() if name.startswith("ce-")}
    return Incoming(body, {**announced, **_kept(lower)}, **_metadata(lower))


def parse(incoming: Incoming) -> Payload:
    """The typed payload. InvalidEvent names every field that is wrong."""
    payload = PAYLOADS.get(incoming.type)
    if payload is None:
        known = ", ".join(sorted(PAYLOADS))
        raise InvalidEvent([f"ce-type: {incoming.type!r} is not one of {known}"])
    return validate(payload, strict_json.loads(incoming.data))


def validate(model: type[Model], value: Any) -> Model:
    """Validate with pydantic; every problem becomes one `where: what` line of an InvalidEvent."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidEvent(_problems(error.errors(include_url=False))) from None


def _problems(errors: Sequence[Any]) -> list[str]:
    """A line each. A list that is "too short" only because its items are wrong is not one of them."""
    places = [tuple(error["loc"]) for error in errors]
    return [
        _problem(error)
        for error in errors
        if not (error["type"] == "too_short" and any(_inside(place, error["loc"]) for place in places))
    ]


def _inside(place: tuple[Any, ...], outer: tuple[Any, ...]) -> bool:
    return len(place) > len(outer) and place[: len(outer)] == tuple(outer)


def _problem(error: Mapping[str, Any]) -> str:
    what = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"] and error["type"] == "value_error":
        return what  # a model's own check, which names its field
    where = ".".join(str(step) for step in error["loc"]) or "body"
    return f"{where}: {what}"


def _from_cloud_event(headers: Mapping[str, str], body: bytes) -> Incoming:
    if "ce-specversion" in headers and (missing := [name for name in _REQUIRED if not headers.get(name)]):
        raise InvalidEvent([f"{name}: a CloudEvent in binary mode has one" for name in missing])
    try:
        event = from_http(headers, body, data_unmarshaller=_as_it_is)
    except (GenericException, ValueError, RecursionError, TypeError, AttributeError) as error:
        raise InvalidEvent([f"body: is not a CloudEvent: {str(error)[:500]}"]) from error
    found = event.get_attributes()
    for name in ("id", "source", "type"):
        if not isinstance(found.get(name), str) or not found[name]:
            raise InvalidEvent([f"{name}: a CloudEvent's is a string of at least one character"])
    known = {f"ce-{name}": str(value) for name, value in found.items()}
    if "ce-specversion" in headers and "ce-time" not in headers:
        del known["ce-time"]  # the SDK makes one up, and a redelivery must not differ
    content_type = known.pop("ce-datacontenttype", "application/json")
    attributes = {**_kept(headers), **known, "content-type": content_type}
    return Incoming(_bytes_of(event.get_data()), attributes, **_metadata(headers))


def _checked(incoming: Incoming) -> Incoming:
    """An attribute that is no text cannot be published again, nor be part of an id."""
    for name, value in (*incoming.attributes.items(), ("message-id", incoming.message_id)):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidEvent([f"{name}: holds a lone surrogate"]) from None
    return incoming


def _bytes_of(data: Any) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8", "surrogatepass")
    return data if isinstance(data, bytes) else strict_json.dumps(data)


def _as_it_is(data: Any) -> Any:
    return data


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in headers.items()
        if name in _KEPT_HEADERS or name.startswith(dead_letters.PREFIX)
    }


def _metadata(headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "message_id": headers.get(f"{_METADATA}message-id", ""),
        "publish_time": moment_of(headers.get(f"{_METADATA}publish-time")),
        "ordering_key": headers.get(f"{_METADATA}ordering-key", ""),
        "delivery_attempt": _number(headers.get(f"{_METADATA}delivery-attempt")),
    }


def _wrapped(body: bytes) -> dict[str, Any] | None:
    """The wrapped push a body holds, if it is one. A turn may have fields of these names as well."""
    if body.lstrip()[:1] != b"{" or b'"message"' not in body:
        return None
    value = strict_json.loads(body)
    shaped = (
        isinstance(value.get("message"), dict)
        and isinstance(value.get("subscription"), str)
        and "session_id" not in value
    )
    return cast(dict[str, Any], value) if shaped else None


def _pushed(push: dict[str, Any]) -> Incoming:
    """The message of a wrapped push, whose data may be a CloudEvent in either mode."""
    message = _from_push(push)
    announced = message.attributes.get("content-type", "").startswith("application/cloudevents")
    if not announced and "ce-specversion" not in message.attributes:
        return message
    event = _from_cloud_event(message.attributes, message.data)
    return replace(message, data=event.data, attributes={**message.attributes, **event.attributes})


def _from_push(push: dict[str, Any]) -> Incoming:
    message = cast(dict[str, Any], push["message"])
    try:
        data = base64.b64decode(message.get("data") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise InvalidEvent(["message.data: is not base64"]) from None
    attributes: Any = message.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise InvalidEvent(["message.attributes: must be an object"])
    return Incoming(
        data,
        {str(name): str(value) for name, value in cast(dict[str, Any], attributes).items()},
        message_id=str(message.get("messageId") or message.get("message_id") or ""),
        publish_time=moment_of(message.get("publishTime") or message.get("publish_time")),
        ordering_key=str(message.get("orderingKey") or ""),
        delivery_attempt=_number(push.get("deliveryAttempt")),
    )


def _number(value: Any) -> int:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < _DIGITS else 0
