"""Transport of the episodic embedder: a functions-framework function, `episodic_embedder`."""

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina.events import TurnRecorded
from lamina.wiring import wiring
from lamina.worker import Route, Worker
from lamina_services.episodic_embedder.handler import on_turn_recorded


async def _take(event: TurnRecorded) -> None:
    parts = wiring()
    await on_turn_recorded(event, episodes=parts.episodes, embedder=parts.embedder, publisher=parts.publisher)


_worker = Worker(
    "episodic-embedder",
    routes={"episodic-embedder": Route(TurnRecorded, _take)},
    needs=("database", "pubsub"),
)


@functions_framework.aio.http
async def episodic_embedder(request: Request) -> Response:
    """`POST /push/episodic-embedder` and `GET /healthz`."""
    return await _worker(request)
