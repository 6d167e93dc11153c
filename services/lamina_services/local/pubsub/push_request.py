"""Builds the HTTP request that carries a message to a push endpoint, wrapped in JSON or as it is.

An unwrapped push with metadata carries attributes as headers. HTTP limits what a header may hold, so:
- a value of printable ASCII is sent unchanged; in any other value each character outside printable ASCII, and
  "%" itself, becomes the percent-encoding of its UTF-8 bytes (as the CloudEvents HTTP binding does);
- an attribute whose name is not a header name, or names the framing of the request (`content-length`, `host`,
  `transfer-encoding`, ...), is left out;
- metadata wins over an attribute of the same name, and `content-type` is `application/octet-stream` unless an
  attribute sets it.
No `Authorization` is sent, also where the settings ask for an OIDC token: there is nobody here to sign one.
"""

import json
import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lamina_services.local.pubsub.shapes import PubsubMessage, SubscriptionConfig

USER_AGENT = "lamina-pubsub-emulator"

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PRINTABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?|")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_FRAMING = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive"}
    | {"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)


@dataclass(frozen=True, slots=True)
class PushRequest:
    """What to post: valid header lines and the body."""

    headers: list[tuple[str, str]]
    body: bytes


def build_push(config: SubscriptionConfig, message: PubsubMessage, attempt: int) -> PushRequest:
    """The request for one delivery; `attempt` is 0 where the subscription counts none."""
    if not config.push_config.HasField("no_wrapper"):
        return _wrapped(config.name, message, attempt)
    headers = {"content-type": "application/octet-stream", "user-agent": USER_AGENT}
    if config.push_config.no_wrapper.write_metadata:
        headers |= _attribute_headers(message)
        headers["x-goog-pubsub-subscription-name"] = config.name
        headers["x-goog-pubsub-message-id"] = message.message_id
        headers["x-goog-pubsub-publish-time"] = message.publish_time.ToJsonString()
        if message.ordering_key:
            headers["x-goog-pubsub-ordering-key"] = header_value(message.ordering_key)
    return PushRequest(list(headers.items()), message.data)


def header_value(text: str) -> str:
    """The text as a header value: unchanged when it can be, percent-encoded where it must be."""
    return text if _PRINTABLE.fullmatch(text) else quote(text, safe=_SAFE)


def _attribute_headers(message: PubsubMessage) -> dict[str, str]:
    return {
        name.lower(): header_value(value)
        for name, value in message.attributes.items()
        if _HEADER_NAME.fullmatch(name) and name.lower() not in _FRAMING
    }


def _wrapped(subscription: str, message: PubsubMessage, attempt: int) -> PushRequest:
    published = message.publish_time.ToJsonString()
    inner: dict[str, Any] = {
        "messageId": message.message_id,
        "message_id": message.message_id,
        "publishTime": published,
        "publish_time": published,
    }
    if message.data:
        inner["data"] = b64encode(message.data).decode()
    if message.attributes:
        inner["attributes"] = dict(message.attributes)
    if message.ordering_key:
        inner["orderingKey"] = message.ordering_key
    envelope: dict[str, Any] = {"message": inner, "subscription": subscription}
    if attempt:
        envelope["deliveryAttempt"] = attempt
    body = json.dumps(envelope, separators=(",", ":")).encode()
    return PushRequest([("content-type", "application/json"), ("user-agent", USER_AGENT)], body)
