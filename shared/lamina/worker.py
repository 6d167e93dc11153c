"""The edge all subscribers share: decode, run, and turn the outcome into an answer or a parked message.

A push is acknowledged (204) only when its result is committed or the message is parked. Everything
else is a nack, which Pub/Sub retries with backoff and dead-letters in the end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from lamina.envelope import Incoming, decode_request, parse
from lamina.errors import (
    ConfigurationError,
    DependencyUnavailable,
    InvalidEvent,
    LaminaError,
    NotFound,
    Permanent,
    Transient,
)
from lamina.events import Payload
from lamina.ports import Message, Publisher
from lamina.telemetry import configure_logging, log
from lamina.topology import REPLAY_ATTRIBUTE, load_topology
from lamina.web import body_of, json_response, problem
from lamina.wiring import Dependency, Wiring, wiring

_MARGIN_S = 2.0
"""Seconds before the acknowledgement deadline at which a handler is ended."""


class Parts(Protocol):
    """What the edge itself needs of the wiring."""

    @property
    def publisher(self) -> Publisher:
        """Where messages are parked."""
        ...

    async def ping(self, dependency: Dependency) -> None:
        """Raise DependencyUnavailable unless it answers."""
        ...


Decode = Callable[[Incoming], Payload]
P = TypeVar("P", bound=Payload)


class Route:
    """What a subscription carries, and what to do with it.

    `decode` reads the payload from the message; turn-ingest accepts more forms than the others.
    """

    def __init__(
        self, payload: type[P], handler: Callable[[P], Awaitable[None]], decode: Decode = parse
    ) -> None:
        self._payload = payload
        self._handler: Callable[[Any], Awaitable[None]] = handler
        self._decode = decode

    async def run(self, incoming: Incoming) -> None:
        """Decode and handle. InvalidEvent where the message is not for this subscription."""
        payload = self._decode(incoming)
        if not isinstance(payload, self._payload):
            raise InvalidEvent(
                [f"ce-type: this subscription carries {self._payload.type}, not {payload.type}"]
            )
        await self._handler(payload)


class Worker:
    """A service's subscriptions.

    `routes`: by the subscription's name. `needs`: the dependencies that /healthz asks.
    """

    def __init__(
        self,
        service: str,
        routes: Mapping[str, Route],
        needs: Sequence[Dependency],
        parts: Callable[[], Wiring | Parts] = wiring,
    ) -> None:
        configure_logging()
        self._service = service
        self._routes = routes
        self._needs = needs
        self._parts = parts

    async def __call__(self, request: Request) -> Response:
        """Answer `GET /healthz` and `POST /push/<subscription>`."""
        path = request.url.path.rstrip("/")
        if path.endswith("/healthz"):
            return await self.health()
        subscription = path.removeprefix("/push/")
        if request.method != "POST" or subscription not in self._routes:
            return problem(NotFound(f"{request.method} {path or '/'} is not served here"))
        return await self.take(request, subscription)

    async def health(self) -> Response:
        """200 when every dependency answers, else 503; says which does not."""
        report = {name: await self._state_of(name) for name in self._needs}
        healthy = all(state == "ok" for state in report.values())
        body = {"service": self._service, "healthy": healthy, **report}
        return json_response(body, 200 if healthy else 503)

    async def take(self, request: Request, subscription: str) -> Response:
        """Process one push."""
        headers = dict(request.headers)
        try:
            body = await body_of(request)
        except Permanent as error:
            return problem(error)
        try:
            incoming = decode_request(headers, body)
        except Permanent as error:
            return await self._park(subscription, Message(body, _portable(headers)), error)
        if incoming.attributes.get(REPLAY_ATTRIBUTE, subscription) != subscription:
            return _ack()  # replayed for another subscriber; not every emulator filters
        return await self._run(incoming, subscription)

    async def _run(self, incoming: Incoming, subscription: str) -> Response:
        try:
            async with asyncio.timeout(self._time_s(subscription)):
                await self._routes[subscription].run(incoming)
        except TimeoutError:  # Pub/Sub delivers again at its deadline: two at work on one event help nobody
            late = DependencyUnavailable(self._service, "did not finish within the acknowledgement deadline")
            return self._nack(subscription, incoming.message, late)
        except (Transient, ConfigurationError) as error:  # a person mends a deployment, not the message
            return self._nack(subscription, incoming.message, error)
        except Permanent as error:
            return await self._park(subscription, incoming.message, error)
        return _ack()

    def _time_s(self, subscription: str) -> float:
        return load_topology().subscription(subscription).ack_deadline_s - _MARGIN_S

    def _nack(self, subscription: str, message: Message, error: LaminaError) -> Response:
        log.warning("will be retried: %s", error, extra=self._fields(subscription, message, error))
        return problem(Transient(str(error)))

    async def _park(self, subscription: str, message: Message, error: Permanent) -> Response:
        log.error("parked: %s", error, extra=self._fields(subscription, message, error))
        reason = {
            "reason": str(error),
            "error": type(error).__name__,
            "service": self._service,
            "parked-at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        try:
            await self._parts().publisher.park(subscription, message, reason)
        except LaminaError as failure:
            return problem(Transient(f"could not park: {failure}"))
        return _ack()

    async def _state_of(self, dependency: Dependency) -> str:
        try:
            await self._parts().ping(dependency)
        except LaminaError as error:
            return str(error)
        return "ok"

    def _fields(self, subscription: str, message: Message, error: LaminaError) -> dict[str, str]:
        return {
            "service": self._service,
            "subscription": subscription,
            "event_id": message.attributes.get("ce-id", ""),
            "event_type": message.attributes.get("ce-type", ""),
            "error_type": type(error).__name__,
        }


def _ack() -> Response:
    return Response(status_code=204)


def _portable(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that were attributes of the message."""
    return {name: text for name, text in headers.items() if name.startswith("ce-") or name == "content-type"}
