"""What the episodic embedder does with a recorded turn."""

from lamina.events import MemoryChanged, TurnRecorded
from lamina.ports import Embedder, EpisodeStore, Publisher
from lamina_services.episodic_embedder.decision import CHUNKER, chunks_of

SLICE = 32
"""Chunks embedded and stored together."""


async def on_turn_recorded(
    event: TurnRecorded, *, episodes: EpisodeStore, embedder: Embedder, publisher: Publisher
) -> None:
    """Log the turn and its text first (searchable by words at once), then add the vectors.

    An embedder that is down costs the vectors until the redelivery, never the turn. A turn of many chunks is
    embedded a slice at a time, each kept: one that takes longer than a delivery may last still gets done.
    """
    turn = event.turn
    chunks = chunks_of(turn)
    missing = set(await episodes.record(turn, chunks, CHUNKER))
    pending = [chunk for chunk in chunks if chunk.ordinal in missing]
    for start in range(0, len(pending), SLICE):
        some = pending[start : start + SLICE]
        vectors = await embedder.documents([chunk.text for chunk in some])
        by_ordinal = dict(zip((chunk.ordinal for chunk in some), vectors, strict=True))
        await episodes.embed(turn, by_ordinal, embedder.name, None)
    await episodes.embed(turn, {}, embedder.name, event.event_id())
    await publisher.publish(MemoryChanged.because_of(event, "episodes", [turn.turn_id]))
