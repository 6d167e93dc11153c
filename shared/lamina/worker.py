"""The edge all subscribers share: decode, run, and turn the outcome into an answer or a parked message.

A push is acknowledged (204) only when its result is committed or the message is parked. Everything
else is a nack, which Pub/Sub retries with backoff. On its last attempt the worker parks the message itself:
only it can say why, whereas Pub/Sub's own dead letter would hold no reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from lamina.dead_letters import Failure, failures_told, parked
from lamina.envelope import Incoming, decode_request, parse, undecoded
from lamina.errors import (
    ConfigurationError,
    DependencyUnavailable,
    Forgotten,
    InvalidEvent,
    LaminaError,
    NotFound,
    Permanent,
    Transient,
    Unforeseen,
)
from lamina.events import Payload
from lamina.ports import Clock, Publisher
from lamina.telemetry import Outcome, about, configure_logging, consuming, log, settled, trace_id
from lamina.telemetry.http import measurements
from lamina.telemetry.setup import start
from lamina.topology import REPLAY_ATTRIBUTE, load_topology
from lamina.web import body_of, json_response, path_of, problem
from lamina.wiring import Dependency, Wiring, wiring

_MARGIN_S = 2.0
"""Seconds before the acknowledgement deadline at which a handler is ended."""


class Parts(Protocol):
    """What the edge itself needs of the wiring."""

    @property
    def publisher(self) -> Publisher:
        """Where messages are parked."""
        ...

    @property
    def clock(self) -> Clock:
        """Tells when."""
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
        about(payload)
        await self._handler(payload)


class RawRoute:
    """Takes dead letters as they are: of any type, readable or not, replayed before or not.

    Nothing of it is parked, which would come back here: what fails is refused, and delivered again.
    """

    def __init__(self, handler: Callable[[Incoming], Awaitable[None]]) -> None:
        self._handler = handler

    async def run(self, incoming: Incoming) -> None:
        """Handle."""
        await self._handler(incoming)


class Worker:
    """A service's subscriptions.

    `routes`: by the subscription's name. `needs`: the dependencies that /healthz asks.
    """

    def __init__(
        self,
        service: str,
        routes: Mapping[str, Route | RawRoute],
        needs: Sequence[Dependency],
        parts: Callable[[], Wiring | Parts] = wiring,
    ) -> None:
        configure_logging()
        self._service = service
        self._routes = routes
        self._needs = needs
        self._parts = parts

    async def __call__(self, request: Request) -> Response:
        """Answer `GET /healthz`, `GET /metrics` and `POST /push/<subscription>`."""
        path = path_of(request)
        if path.endswith("/healthz"):
            return await self.health()
        if path == "/metrics" and request.method == "GET":
            return measurements(self._service)
        subscription = path.removeprefix("/push/")
        if request.method != "POST" or subscription not in self._routes:
            return problem(NotFound(f"{request.method} {path or '/'} is not served here"))
        return await self.take(request, subscription)

    async def health(self) -> Response:
        """200 when every dependency answers, else 503; says which does not."""
        start(self._service)  # so that the first event need not wait for it
        report = {name: await self._state_of(name) for name in self._needs}
        healthy = all(state == "ok" for state in report.values())
        body = {"service": self._service, "healthy": healthy, **report}
        return json_response(body, 200 if healthy else 503)

    async def take(self, request: Request, subscription: str) -> Response:
        """Process one push."""
        headers = dict(request.headers)
        unreadable: Permanent | None = None
        try:
            body = await body_of(request)
        except Permanent as error:
            return problem(error)
        try:
            incoming = decode_request(headers, body)
        except Permanent as error:
            incoming, unreadable = undecoded(headers, body), error
        parks = self._parks(subscription)
        meant_for = incoming.attributes.get(REPLAY_ATTRIBUTE, subscription)
        if parks and not unreadable and meant_for != subscription:
            return _ack()  # replayed for another subscriber; not every emulator filters
        async with consuming(self._service, subscription, incoming):
            if parks and unreadable:
                return await self._park(subscription, incoming, unreadable)
            return await self._run(incoming, subscription)

    async def _run(self, incoming: Incoming, subscription: str) -> Response:
        try:
            await self._handle(incoming, subscription)
        except (Transient, ConfigurationError) as error:  # a person mends a deployment, not the message
            return await self._retry(subscription, incoming, error)
        except Forgotten as error:
            log.info("dropped: %s", error)
            return _settled("forgotten", error, _ack())
        except Permanent as error:
            return await self._park(subscription, incoming, error)
        except Exception as error:
            log.exception("unforeseen")
            if _last_attempt(incoming):
                return await self._park(subscription, incoming, error)
            return _settled("unforeseen", error, problem(Unforeseen()))
        return _settled("done", None, _ack())

    async def _handle(self, incoming: Incoming, subscription: str) -> None:
        try:
            async with asyncio.timeout(self._time_s(subscription)):
                await self._routes[subscription].run(incoming)
        except TimeoutError as error:  # Pub/Sub delivers again: two at work on one event help nobody
            raise DependencyUnavailable(
                self._service, "did not finish within the acknowledgement deadline"
            ) from error

    def _time_s(self, subscription: str) -> float:
        return load_topology().ack_deadline_s(subscription) - _MARGIN_S

    def _parks(self, subscription: str) -> bool:
        return not isinstance(self._routes[subscription], RawRoute)

    async def _retry(self, subscription: str, incoming: Incoming, error: LaminaError) -> Response:
        if _last_attempt(incoming):
            return await self._park(subscription, incoming, error)
        log.warning("will be retried: %s", error)
        return _settled("retried", error, problem(Transient(str(error))))

    async def _park(self, subscription: str, incoming: Incoming, error: Exception) -> Response:
        if not self._parks(subscription):
            log.error("refused: %s", error)
            return _settled("retried", error, problem(Transient(str(error))))
        try:
            letter = parked(incoming.message, self._failure(incoming, error))
            await self._parts().publisher.park(subscription, letter)
        except LaminaError as failure:
            log.error("could not park: %s", failure)
            return _settled("retried", failure, problem(Transient(f"could not park: {failure}")))
        log.error("parked: %s", error)
        return _settled("parked", error, _ack())

    def _failure(self, incoming: Incoming, error: Exception) -> Failure:
        return Failure.because(
            error,
            service=self._service,
            parked_at=self._parts().clock.now(),
            first_seen=incoming.first_seen,
            trace_id=trace_id(),
            failures=failures_told(incoming.attributes) + 1,
            message_id=incoming.first_message_id,
        )

    async def _state_of(self, dependency: Dependency) -> str:
        try:
            await self._parts().ping(dependency)
        except LaminaError as error:
            return str(error)
        return "ok"


def _ack() -> Response:
    return Response(status_code=204)


def _settled(outcome: Outcome, error: BaseException | None, response: Response) -> Response:
    settled(outcome, error)
    return response


def _last_attempt(incoming: Incoming) -> bool:
    """Whether Pub/Sub gives up after this one. It counts from 1; 0 where the push does not tell."""
    return incoming.delivery_attempt >= load_topology().delivery.max_delivery_attempts
