"""The HTTP interface observed, and the measurements to read. Not for agents: it needs a web framework."""

import time
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from lamina.errors import Unforeseen
from lamina.telemetry import declared, setup
from lamina.telemetry.carrying import context_of_headers
from lamina.telemetry.declared import Attribute
from lamina.telemetry.instruments import instruments
from lamina.telemetry.logs import log
from lamina.telemetry.observing import failed, span
from lamina.telemetry.scope import Scope, current
from lamina.web import problem

_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")


async def served(
    service: str, request: Request, answer: Callable[[Request], Awaitable[Response]]
) -> Response:
    """The answer, observed where the path is part of the HTTP interface; health and metrics are not.

    An unforeseen error is logged here and answered with 500: a framework's log would quote what it quotes.
    """
    route = route_of(str(request.scope["path"]))
    if route is None:
        return await answer(request)
    setup.start(service)
    method = request.method if request.method in _METHODS else "_OTHER"
    told = {Attribute.METHOD.value: method, Attribute.ROUTE.value: route}
    error: Exception | None = None
    began = time.perf_counter()
    token = current.set(Scope(service))
    try:
        context = context_of_headers(request.headers)
        with span(declared.SERVE, told, context, method=method, route=route) as live:
            try:
                response = await answer(request)
            except Exception as caught:
                error = caught
                log.exception("unforeseen")
                response = problem(Unforeseen())
                failed(live, error)
            live.set_attribute(Attribute.STATUS, response.status_code)
    finally:
        current.reset(token)
    why = {Attribute.ERROR.value: type(error).__name__} if error else {}
    status = {Attribute.STATUS.value: response.status_code}
    instruments().request_duration.record(time.perf_counter() - began, {**told, **status, **why})
    await setup.after_work()
    return response


def measurements(service: str) -> Response:
    """The answer to `GET /metrics`."""
    setup.start(service)
    text, media_type = setup.exposition()
    return Response(text, headers={"content-type": media_type})


def route_of(path: str) -> str | None:
    """The route as it is declared; None for any other path."""
    plain = path.rstrip("/")
    if plain in declared.ROUTES:
        return plain
    before, _, after = declared.RECEIPT_ROUTE.partition("{turn_id}")
    if path.startswith(before) and path.endswith(after) and len(path) >= len(before + after):
        return declared.RECEIPT_ROUTE
    return None
