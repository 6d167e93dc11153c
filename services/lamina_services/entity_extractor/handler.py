"""What the entity extractor does with a recorded turn."""

from lamina.errors import Permanent
from lamina.events import MemoryChanged, TurnRecorded
from lamina.ports import Embedder, EntityStore, LanguageModel, Publisher, Reconciled
from lamina_services.entity_extractor.decision import admissible


async def on_turn_recorded(
    event: TurnRecorded,
    *,
    entities: EntityStore,
    model: LanguageModel,
    embedder: Embedder,
    publisher: Publisher,
) -> None:
    """Extract, reconcile, announce, embed. Delivered again, it takes up where it stopped.

    The vectors come last: entities can be found by their words as soon as they are committed.
    """
    turn = event.turn
    result = await entities.absorbed(turn, event.event_id())
    if result is None:
        result = await _learn(event, entities, model)
    if result.changed:
        changed = [str(entity_id) for entity_id in result.changed]
        await publisher.publish(MemoryChanged.because_of(event, "entities", changed))
    texts = await entities.unembedded(turn, result.changed)
    if texts:
        vectors = await embedder.documents(list(texts.values()))
        await entities.embed(turn, dict(zip(texts, vectors, strict=True)), embedder.name)


async def _learn(event: TurnRecorded, entities: EntityStore, model: LanguageModel) -> Reconciled:
    turn = event.turn
    known = await entities.known(turn)
    try:
        statements = admissible(await model.extract(turn, known), turn)
    except Permanent:
        await entities.absorbed(turn, event.event_id())  # Forgotten meanwhile: then it must not be parked
        raise
    return await entities.absorb(turn, statements, model.name, event.event_id())
