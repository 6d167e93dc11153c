"""Transport of the compactor: a functions-framework function, `compactor`, with two subscriptions."""

from typing import Any, cast

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina import strict_json
from lamina.envelope import Incoming, validate
from lamina.events import CompactionDue, CompactionRequested
from lamina.wiring import wiring
from lamina.worker import Route, Worker
from lamina_services.compactor.handler import on_compaction_due, on_compaction_requested


def _tick(incoming: Incoming) -> CompactionDue:
    """The tick. Cloud Scheduler sends the same body every time, so the publish time says when it is due."""
    tick: Any = strict_json.loads(incoming.data or b"{}")
    if isinstance(tick, dict) and incoming.publish_time:
        tick = {"due_at": incoming.publish_time, **cast(dict[str, Any], tick)}
    return validate(CompactionDue, tick)


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
        "compaction-planner": Route(CompactionDue, _plan, _tick),
        "compactor": Route(CompactionRequested, _compact),
    },
    needs=("database", "pubsub"),
)


@functions_framework.aio.http
async def compactor(request: Request) -> Response:
    """`POST /push/compaction-planner`, `POST /push/compactor` and `GET /healthz`."""
    return await _worker(request)
