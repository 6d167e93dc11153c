"""Transport of the recorder of dead letters: a functions-framework function, `dead_letter_recorder`."""

from functools import partial

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina.envelope import Incoming
from lamina.topology import Recording, load_topology
from lamina.wiring import wiring
from lamina.worker import RawRoute, Worker
from lamina_services.dead_letter_recorder.handler import on_dead_letter


async def _take(recording: Recording, incoming: Incoming) -> None:
    parts = wiring()
    await on_dead_letter(incoming, recording, index=parts.dead_letters, clock=parts.clock)


_worker = Worker(
    "dead-letter-recorder",
    routes={each.name: RawRoute(partial(_take, each)) for each in load_topology().recordings},
    needs=("database",),
)


@functions_framework.aio.http
async def dead_letter_recorder(request: Request) -> Response:
    """`POST /push/<subscription>.dead.recorder` and `GET /healthz`."""
    return await _worker(request)
