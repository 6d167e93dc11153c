"""Transport of the entity extractor: a functions-framework function, `entity_extractor`."""

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina.events import TurnRecorded
from lamina.wiring import wiring
from lamina.worker import Route, Worker
from lamina_services.entity_extractor.handler import on_turn_recorded


async def _take(event: TurnRecorded) -> None:
    parts = wiring()
    await on_turn_recorded(
        event,
        entities=parts.entities,
        model=parts.model,
        embedder=parts.embedder,
        publisher=parts.publisher,
    )


_worker = Worker(
    "entity-extractor",
    routes={"entity-extractor": Route(TurnRecorded, _take)},
    needs=("database", "pubsub"),
)


@functions_framework.aio.http
async def entity_extractor(request: Request) -> Response:
    """`POST /push/entity-extractor` and `GET /healthz`."""
    return await _worker(request)
