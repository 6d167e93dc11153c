"""The tick that Cloud Scheduler gives in the cloud."""

import asyncio
import logging
from datetime import UTC, datetime

from lamina.errors import LaminaError
from lamina.events import CompactionDue
from lamina.ports import Publisher

log = logging.getLogger("lamina.local")


async def tick(publisher: Publisher, every_s: float) -> None:
    """Publish CompactionDue every `every_s` seconds, the first one after that time. Runs until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await publisher.publish(CompactionDue(due_at=datetime.now(UTC)))
        except LaminaError as error:  # the next tick asks for the same work
            log.warning("a tick was not published: %s", error)
