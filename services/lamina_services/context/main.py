"""Transport of the read side: a functions-framework function, `context`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina.api import ContextRequest, ContextResponse, FetchRequest, SearchRequest
from lamina.errors import LaminaError, NotFound, Permanent
from lamina.web import json_body, json_response, problem
from lamina.wiring import Wiring, wiring
from lamina.worker import Worker
from lamina_services.context.fetch import fetch_part
from lamina_services.context.handler import build_context
from lamina_services.context.search import search_memory

MAX_BODY_BYTES = 256 * 1024
"""The longest question, every character escaped, fits."""

Answer = dict[str, Any]


class NotJson(Permanent):
    """The body is announced as something else than JSON. Remedy: send `content-type: application/json`."""

    status = 415


class MethodNotAllowed(Permanent):
    """The path takes POST only."""

    status = 405


async def _context(request: Request, parts: Wiring) -> Answer:
    asked = await json_body(request, ContextRequest, MAX_BODY_BYTES)
    answer = await build_context(
        asked,
        buffer=parts.buffer,
        reader=parts.reader,
        embedder=parts.embedder,
        tokens=parts.tokens,
        settings=parts.settings,
    )
    return as_json(answer)


async def _search(request: Request, parts: Wiring) -> Answer:
    asked = await json_body(request, SearchRequest, MAX_BODY_BYTES)
    return (await search_memory(asked, reader=parts.reader, embedder=parts.embedder)).model_dump(mode="json")


async def _fetch(request: Request, parts: Wiring) -> Answer:
    asked = await json_body(request, FetchRequest, MAX_BODY_BYTES)
    answer = await fetch_part(asked, buffer=parts.buffer, reader=parts.reader)
    return {"handle": answer.handle, "part": answer.part}


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
    path = request.url.path.rstrip("/")
    if path.endswith("/healthz"):
        with suppress(LaminaError):  # what is amiss is in the answer
            _warm_up(parts())
        return await _worker(request)
    try:
        route = _ROUTES.get(path)
        if route is None:
            raise NotFound(f"{request.method} {path or '/'} is not served here")
        if request.method != "POST":
            raise MethodNotAllowed(f"{path} takes POST")
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise NotJson(f"content-type: {kind!r} is not JSON")
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
    """`POST /v1/context`, `/v1/search`, `/v1/fetch` and `GET /healthz`."""
    return await answer(request)
