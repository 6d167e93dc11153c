"""Transport of turn-ingest: a functions-framework function, `turn_ingest`.

An `http` function and no `cloud_event` one, since anyone may publish to the topic, in any of its forms.
"""

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from lamina.api import TurnAccepted
from lamina.envelope import decode_request
from lamina.errors import LaminaError
from lamina.events import TurnPublished
from lamina.model import Turn
from lamina.telemetry import about, counted_turn
from lamina.telemetry.http import served
from lamina.web import body_of, check_json_post, json_response, path_of, problem
from lamina.wiring import wiring
from lamina.worker import Route, Worker
from lamina_services.turn_ingest.decision import published, turn_of
from lamina_services.turn_ingest.handler import ingest


async def _accept(turn: Turn) -> TurnAccepted:
    parts = wiring()
    about(turn)
    accepted = await ingest(turn, buffer=parts.buffer, publisher=parts.publisher)
    counted_turn(turn.app, duplicate=accepted.duplicate)
    return accepted


async def _take(event: TurnPublished) -> None:
    await _accept(event.turn)


_worker = Worker(
    "turn-ingest",
    routes={"turn-ingest": Route(TurnPublished, _take, decode=published)},
    needs=("valkey", "pubsub"),
)


@functions_framework.aio.http
async def turn_ingest(request: Request) -> Response:
    """`POST /v1/turns`, `POST /push/turn-ingest` and `GET /healthz`."""
    if path_of(request) == "/v1/turns":
        return await served("turn-ingest", request, _post)
    return await _worker(request)


async def _post(request: Request) -> Response:
    """200 once the turn is in the buffer and published; safe to repeat with the same `turn_id`."""
    try:
        check_json_post(request)
        incoming = decode_request(dict(request.headers), await body_of(request))
        accepted = await _accept(turn_of(incoming, wiring().clock.now()))
    except LaminaError as error:
        return problem(error)
    return json_response(accepted.model_dump(mode="json"))
