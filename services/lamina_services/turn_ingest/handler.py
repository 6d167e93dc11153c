"""What turn-ingest does with a turn."""

from contextlib import suppress

from lamina.api import TurnAccepted
from lamina.envelope import encode
from lamina.errors import Transient
from lamina.events import TurnRecorded
from lamina.model import Turn
from lamina.ports import Buffer, Publisher


async def ingest(turn: Turn, *, buffer: Buffer, publisher: Publisher) -> TurnAccepted:
    """Append the turn, then publish that it is recorded. TooLarge before anything is stored.

    A turn that was appended before is published again: its first delivery may have died in between.
    """
    encode(TurnRecorded(turn=turn))
    appended = await buffer.append(turn)
    await publisher.publish(TurnRecorded(turn=appended.closed or turn))
    with suppress(Transient):  # only a receipt misses the mark, and the turn is on its way
        await buffer.mark_published(turn.session, turn.turn_id)
    return TurnAccepted(turn_id=turn.turn_id, duplicate=appended.duplicate)
