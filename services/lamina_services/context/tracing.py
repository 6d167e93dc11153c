"""Finds a turn's traces in the buffer and the database, within the deadline."""

from collections.abc import Sequence
from datetime import timedelta

from lamina.api import Receipt, ReceiptRequest
from lamina.deadline import Attempt, Deadline
from lamina.errors import DependencyUnavailable, InvalidEvent, NotFound
from lamina.model import SessionKey
from lamina.ports import Buffer, Clock, Evidence, ReceiptReader
from lamina.settings import Settings
from lamina_services.context.receipt import Traces, receipt_of

BUFFER_SHARE = 0.4
"""Of what is left of the deadline, for the buffer; it answers in a fraction of this unless it is frozen."""
FIND_SHARE = 0.5
"""Of the deadline, for finding the session that the caller did not name."""


async def trace_turn(
    request: ReceiptRequest, *, buffer: Buffer, receipts: ReceiptReader, clock: Clock, settings: Settings
) -> Receipt:
    """The turn's receipt, within `request.deadline_ms`.

    NotFound where nobody has heard of it, InvalidEvent where its session must be named,
    DependencyUnavailable where whoever could have heard of it is down.
    """
    deadline = Deadline(request.deadline_ms)
    session_id = request.session_id
    if session_id is None:
        session_id = await _session_of(request, receipts, deadline)
    if not session_id:  # a letter names none: only the index can have heard of it
        traces = await _letters_alone(request, receipts, deadline)
    else:
        session = SessionKey(app=request.app, user_id=request.user_id, session_id=session_id)
        traces = await _traces(session, request.turn_id, buffer, receipts, deadline)
    found = receipt_of(
        session_id,
        request.turn_id,
        traces,
        now=clock.now(),
        marks_kept=timedelta(days=settings.processed_days),
    )
    if found:
        return found
    if traces.degraded:
        raise DependencyUnavailable(" and ".join(traces.degraded), "it may know of the turn")
    raise NotFound(f"no turn {request.turn_id!r} of this user{_advice(request)}")


async def _session_of(request: ReceiptRequest, receipts: ReceiptReader, deadline: Deadline) -> str:
    finding = Attempt("database", receipts.sessions_of(request.app, request.user_id, request.turn_id))
    found = await finding.within(deadline.total_s * FIND_SHARE)
    if found is None:
        raise DependencyUnavailable("memory", "it is needed to find the session; name session_id")
    return _the_one(found, request)


def _the_one(found: Sequence[str], request: ReceiptRequest) -> str:
    named = [session for session in found if session]
    if len(named) > 1:
        raise InvalidEvent([f"session_id: {len(named)} sessions have a turn {request.turn_id!r}; name one"])
    if not found:
        raise NotFound(f"no turn {request.turn_id!r} of this user{_advice(request)}")
    return named[0] if named else ""


async def _letters_alone(request: ReceiptRequest, receipts: ReceiptReader, deadline: Deadline) -> Traces:
    # Whichever session is asked for: letters that name none come along, and the rest is left out.
    any_session = SessionKey(app=request.app, user_id=request.user_id, session_id="-")
    asking = Attempt("database", receipts.evidence(any_session, request.turn_id))
    found = await asking.within(deadline.left_s)
    letters = tuple(letter for letter in found.letters if not letter.session_id) if found else ()
    return Traces(memory=Evidence(letters=letters), memory_down=asking.failed)


async def _traces(
    session: SessionKey, turn_id: str, buffer: Buffer, receipts: ReceiptReader, deadline: Deadline
) -> Traces:
    in_buffer = Attempt("buffer", buffer.trace(session, turn_id))
    in_memory = Attempt("database", receipts.evidence(session, turn_id))
    held = await in_buffer.within(deadline.left_s * BUFFER_SHARE)
    known = await in_memory.within(deadline.left_s)
    if in_buffer.failed and in_memory.failed:
        raise DependencyUnavailable("memory", "neither the buffer nor the database answered in time")
    return Traces(held, known, buffer_down=in_buffer.failed, memory_down=in_memory.failed)


def _advice(request: ReceiptRequest) -> str:
    still = ": it may still wait in Pub/Sub, or have been forgotten"
    if request.session_id:
        return still
    return f"{still}; one so fresh that only the buffer has it is found by its session (session_id)"
