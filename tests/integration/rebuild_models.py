"""Models that a command of its own process is told to use, by LAMINA_MODEL and LAMINA_EMBEDDER."""

import asyncio
import os
from pathlib import Path

from lamina.model import Turn
from lamina.settings import Settings
from lamina.testing.models import HashEmbedder
from tests.integration.rebuild_world import Model


def loud(_: Settings) -> Model:
    """Says everything in capitals. Writes down whom it was asked about, and answers only so often."""
    seen, patience = os.environ.get("TEST_ASKED"), int(os.environ.get("TEST_ANSWERS", "1000"))

    async def note(turn: Turn) -> None:
        nonlocal patience
        patience -= 1
        if seen:
            with Path(seen).open("a") as file:  # noqa: ASYNC230 - a line in a test's file
                file.write(f"{turn.turn_id}\n")
        if patience < 0:
            await asyncio.Event().wait()

    return Model("loud/1", loud=True, before=note)


def hashed(_: Settings) -> HashEmbedder:
    """Needs no model."""
    return HashEmbedder()
