"""What the recorder does with a dead letter."""

from lamina.envelope import Incoming
from lamina.ports import Clock, DeadLetterIndex
from lamina.telemetry import log
from lamina.topology import Recording
from lamina_services.dead_letter_recorder.decision import letter_of


async def on_dead_letter(
    incoming: Incoming, recording: Recording, *, index: DeadLetterIndex, clock: Clock
) -> None:
    """Index the letter. One that names no turn stays in its queue alone, which is the truth in any case."""
    letter = letter_of(incoming, recording.of.name, recording.of.service, clock.now())
    if letter is None:
        log.info("names no turn, not indexed", extra={"subscription": recording.of.name})
        return
    await index.record(letter)
