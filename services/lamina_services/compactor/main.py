"""Transport of the compactor: a functions-framework function, `compactor`, with two subscriptions."""

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina.events import CompactionDue, CompactionRequested
from lamina.wiring import wiring
from lamina.worker import Route, Worker
from lamina_services.compactor.decision import tick_of
from lamina_services.compactor.handler import on_compaction_due, on_compaction_requested


async def _plan(event: CompactionDue) -> None:
    parts = wiring()
    await on_compaction_due(
        event, compactions=parts.compactions, publisher=parts.publisher, settings=parts.settings
    )


async def _compact(event: CompactionRequested) -> None:
    parts = wiring()
    await on_compaction_requested(
        event,
        compactions=parts.compactions,
        model=parts.model,
        publisher=parts.publisher,
        tokens=parts.tokens,
        settings=parts.settings,
    )


_worker = Worker(
    "compactor",
    routes={
        "compaction-planner": Route(CompactionDue, _plan, tick_of),
        "compactor": Route(CompactionRequested, _compact),
    },
    needs=("database", "pubsub"),
)


@functions_framework.aio.http
async def compactor(request: Request) -> Response:
    """`POST /push/compaction-planner`, `POST /push/compactor` and `GET /healthz`."""
    return await _worker(request)
