"""Transport of the summarizer: a functions-framework function, `summarizer`."""

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina.events import TurnRecorded
from lamina.wiring import wiring
from lamina.worker import Route, Worker
from lamina_services.summarizer.handler import on_turn_recorded


async def _take(event: TurnRecorded) -> None:
    parts = wiring()
    await on_turn_recorded(
        event,
        buffer=parts.buffer,
        summaries=parts.summaries,
        model=parts.model,
        publisher=parts.publisher,
        tokens=parts.tokens,
        clock=parts.clock,
        settings=parts.settings,
    )


_worker = Worker(
    "summarizer",
    routes={"summarizer": Route(TurnRecorded, _take)},
    needs=("valkey", "database", "pubsub"),
)


@functions_framework.aio.http
async def summarizer(request: Request) -> Response:
    """`POST /push/summarizer` and `GET /healthz`."""
    return await _worker(request)
