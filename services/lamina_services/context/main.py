"""Transport of the read side: a functions-framework function, `context`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina.api import ContextRequest, ContextResponse, FetchRequest, ReceiptRequest, SearchRequest
from lamina.envelope import validate
from lamina.errors import InvalidEvent, LaminaError, NotFound
from lamina.telemetry import about, context_answered
from lamina.telemetry.http import served
from lamina.web import (
    MAX_QUESTION_BYTES,
    MethodNotAllowed,
    check_json_post,
    json_body,
    json_response,
    path_of,
    problem,
    query_of,
)
from lamina.wiring import Wiring, wiring
from lamina.worker import Worker
from lamina_services.context.fetch import fetch_part
from lamina_services.context.handler import build_context
from lamina_services.context.search import search_memory
from lamina_services.context.tracing import trace_turn

_RECEIPT = ("/v1/turns/", "/receipt")
"""What stands before and after the turn's id."""

Answer = dict[str, Any]


async def _context(request: Request, parts: Wiring) -> Answer:
    asked = await json_body(request, ContextRequest, MAX_QUESTION_BYTES)
    about(asked)
    answer = await build_context(
        asked,
        buffer=parts.buffer,
        reader=parts.reader,
        embedder=parts.embedder,
        tokens=parts.tokens,
        settings=parts.settings,
    )
    context_answered(answer)
    return as_json(answer)


async def _search(request: Request, parts: Wiring) -> Answer:
    asked = await json_body(request, SearchRequest, MAX_QUESTION_BYTES)
    about(asked)
    answer = await search_memory(asked, reader=parts.reader, embedder=parts.embedder)
    context_answered(answer, timed=False)
    return answer.model_dump(mode="json")


async def _fetch(request: Request, parts: Wiring) -> Answer:
    asked = await json_body(request, FetchRequest, MAX_QUESTION_BYTES)
    about(asked)
    answer = await fetch_part(asked, buffer=parts.buffer, reader=parts.reader)
    return {"handle": answer.handle, "part": answer.part}


async def _receipt(request: Request, turn_id: str, parts: Wiring) -> Answer:
    fields = query_of(request)
    if "turn_id" in fields:
        raise InvalidEvent(["turn_id: is in the path"])
    asked = validate(ReceiptRequest, {**fields, "turn_id": turn_id})
    about(asked)
    answer = await trace_turn(
        asked, buffer=parts.buffer, receipts=parts.receipts, clock=parts.clock, settings=parts.settings
    )
    return answer.model_dump(mode="json")


def _turn_of(request: Request) -> str | None:
    """The turn that a receipt is asked of. The path comes decoded, and an id may hold slashes."""
    path = str(request.scope["path"])
    if len(path) < len(_RECEIPT[0] + _RECEIPT[1]) or not path.startswith(_RECEIPT[0]):
        return None
    return path[len(_RECEIPT[0]) : -len(_RECEIPT[1])] if path.endswith(_RECEIPT[1]) else None


def as_json(answer: ContextResponse) -> Answer:
    """The answer as JSON values; events as they are, which pydantic's own dump does not promise for keys."""
    body = answer.model_dump(mode="json", exclude={"recent"})
    body["recent"] = [
        {**view.model_dump(mode="json", exclude={"events"}), "events": list(view.events)}
        for view in answer.recent
    ]
    return body


_ROUTES: Mapping[str, Callable[[Request, Wiring], Awaitable[Answer]]] = {
    "/v1/context": _context,
    "/v1/search": _search,
    "/v1/fetch": _fetch,
}
_worker = Worker("context", routes={}, needs=("valkey", "database"))


async def answer(request: Request, parts: Callable[[], Wiring] = wiring) -> Response:
    """Route one request; every refusal is a problem document."""
    path = path_of(request)
    if path.endswith("/healthz"):
        with suppress(LaminaError):  # what is amiss is in the answer
            _warm_up(parts())
        return await _worker(request)
    if path == "/metrics":
        return await _worker(request)
    try:
        turn_id = _turn_of(request)
        if turn_id is not None:
            if request.method != "GET":
                raise MethodNotAllowed("a receipt", "GET")
            return json_response(await _receipt(request, turn_id, parts()))
        route = _ROUTES.get(path)
        if route is None:
            raise NotFound(f"{request.method} {path or '/'} is not served here")
        check_json_post(request)
        return json_response(await route(request, parts()))
    except LaminaError as error:
        return problem(error)


@cache
def _warm_up(parts: Wiring) -> asyncio.Task[None]:
    """Once, in the background: the first question should not wait for the model to load."""

    async def warm() -> None:
        with suppress(LaminaError):  # the question that needs it will say so
            _ = parts.reader, parts.tokens
            await parts.embedder.warm()

    return asyncio.create_task(warm())


@functions_framework.aio.http
async def context(request: Request) -> Response:
    """`POST /v1/context`, `/v1/search`, `/v1/fetch`, `GET /v1/turns/{turn_id}/receipt`, `GET /healthz` and
    `GET /metrics`."""
    return await served("context", request, answer)
