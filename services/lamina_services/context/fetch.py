"""Fetches in full what a context cut short."""

from pydantic import TypeAdapter, ValidationError

from lamina.api import FetchRequest, FetchResponse
from lamina.errors import NotFound, Transient
from lamina.handles import Handle
from lamina.model import Identifier, SessionKey, Turn
from lamina.ports import Buffer, MemoryReader
from lamina.telemetry import log

_IDENTIFIER = TypeAdapter[str](Identifier)


async def fetch_part(request: FetchRequest, *, buffer: Buffer, reader: MemoryReader) -> FetchResponse:
    """The part that a handle names, from the buffer, else from the log.

    InvalidEvent where it is no handle; NotFound where this user has no such part; Transient where the
    part may exist but a store that could hold it is down.
    """
    handle = Handle.parse(request.handle)
    try:
        session = SessionKey(app=request.app, user_id=request.user_id, session_id=handle.session_id)
        _IDENTIFIER.validate_python(handle.turn_id)
    except ValidationError:
        raise NotFound(f"no part {request.handle[:200]!r}") from None
    turn, failure = await _from_buffer(buffer, session, handle.turn_id)
    if _part(turn, handle) is None:
        turn = await reader.turn(session, handle.turn_id)
    part = _part(turn, handle)
    if part is not None:
        return FetchResponse(handle=request.handle, part=part)
    if failure:
        raise failure
    raise NotFound(f"no part {request.handle[:200]!r}")


async def _from_buffer(
    buffer: Buffer, session: SessionKey, turn_id: str
) -> tuple[Turn | None, Transient | None]:
    try:
        view = await buffer.read(session)
    except Transient as error:
        log.warning("buffer did not answer: %s", error)
        return None, error
    return next((turn for turn in view.turns if turn.turn_id == turn_id), None), None


def _part(turn: Turn | None, handle: Handle) -> dict[str, object] | None:
    if turn is None or handle.event >= len(turn.events):
        return None
    parts = turn.events[handle.event].parts
    return parts[handle.part] if handle.part < len(parts) else None
