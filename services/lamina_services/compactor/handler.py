"""What the compactor does on a tick, and with each request that a tick gives rise to."""

from datetime import timedelta

from lamina.events import CompactionDue, CompactionRequested, MemoryChanged
from lamina.ports import CompactionStore, LanguageModel, Publisher, TokenCounter
from lamina.settings import Settings
from lamina.telemetry import log
from lamina_services.compactor.decision import checked


async def on_compaction_due(
    event: CompactionDue, *, compactions: CompactionStore, publisher: Publisher, settings: Settings
) -> None:
    """Ask for a compaction of each user's project that has old episodes, and delete what has expired.

    Everything is derived from the tick's own time, so that a redelivery asks for the same.
    """
    before = event.due_at - timedelta(days=settings.compaction_after_days)
    for request in await compactions.plan(before):
        await publisher.publish(request)
    expired = await compactions.expire(event.due_at)
    if any(expired.values()):
        log.info("expired: %s", expired, extra={"service": "compactor"})


async def on_compaction_requested(
    event: CompactionRequested,
    *,
    compactions: CompactionStore,
    model: LanguageModel,
    publisher: Publisher,
    tokens: TokenCounter,
    settings: Settings,
) -> None:
    """Consolidate one bounded batch; ask for the next one while old episodes remain."""
    if (compaction_id := await compactions.applied(event)) is None:
        batch = await compactions.batch(event, settings.compaction_batch)
        if not batch.episodes:
            return
        result = checked(
            await model.consolidate(batch.episodes, settings.summary_budget_tokens),
            batch.episodes,
            model=model.name,
            minimum_ratio=settings.compaction_min_ratio,
            tokens=tokens,
        )
        compaction_id = await compactions.apply(event, result, event.event_id())
    await publisher.publish(
        MemoryChanged(
            app=event.app,
            user_id=event.user_id,
            project_id=event.project_id,
            stage="compaction",
            caused_by=event.event_id(),
            changed=(str(compaction_id),),
        )
    )
    if (await compactions.batch(event, 1)).episodes:
        await publisher.publish(event.model_copy(update={"batch": event.batch + 1}))
