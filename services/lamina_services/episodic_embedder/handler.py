"""What the episodic embedder does with a recorded turn."""

from lamina.events import MemoryChanged, TurnRecorded
from lamina.ports import Embedder, EpisodeStore, Publisher
from lamina_services.episodic_embedder.decision import chunks_of


async def on_turn_recorded(
    event: TurnRecorded, *, episodes: EpisodeStore, embedder: Embedder, publisher: Publisher
) -> None:
    """Log the turn and its text first (searchable by words at once), then add the vectors.

    An embedder that is down costs the vectors until the redelivery, never the turn.
    """
    turn = event.turn
    chunks = chunks_of(turn)
    missing = set(await episodes.record(turn, chunks))
    pending = [chunk for chunk in chunks if chunk.ordinal in missing]
    vectors = await embedder.documents([chunk.text for chunk in pending]) if pending else []
    by_ordinal = dict(zip((chunk.ordinal for chunk in pending), vectors, strict=True))
    await episodes.embed(turn, by_ordinal, embedder.name, event.event_id())
    await publisher.publish(
        MemoryChanged(
            app=turn.app,
            user_id=turn.user_id,
            session_id=turn.session_id,
            project_id=turn.project_id,
            stage="episodes",
            caused_by=event.event_id(),
            changed=(turn.turn_id,),
        )
    )
