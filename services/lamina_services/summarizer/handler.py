"""What the summarizer does with a recorded turn."""

from collections.abc import Sequence

from lamina.errors import StaleVersion
from lamina.events import MemoryChanged, TurnRecorded
from lamina.model import Summary, Turn
from lamina.ports import Buffer, BufferView, LanguageModel, Publisher, SummaryStore, TokenCounter
from lamina.settings import Settings
from lamina_services.summarizer.decision import checked, plan, sizes_of

ROUNDS = 6
"""Decisions for one event: another worker may commit first, and a backlog takes several summaries."""


async def on_turn_recorded(
    event: TurnRecorded,
    *,
    buffer: Buffer,
    summaries: SummaryStore,
    model: LanguageModel,
    publisher: Publisher,
    tokens: TokenCounter,
    settings: Settings,
) -> None:
    """Summarise what the buffer should let go of, then let go of it.

    In this order: commit, announce, trim. A redelivery finds what is committed and not yet trimmed, and takes
    up from there. StaleVersion where other workers keep committing first.
    """
    session = event.turn.session
    stale: StaleVersion | None = None
    for _ in range(ROUNDS):
        view = await _complete_view(event.turn, buffer, summaries)
        # In this order: what is covered is then covered by `current` or an earlier version.
        covered = await summaries.covered(session, [turn.turn_id for turn in view.turns])
        current = await summaries.latest(session, *_origin(event.turn, view))
        todo = plan(view, covered=covered, tokens=sizes_of(view.turns, tokens), settings=settings)
        if todo.idle:
            return
        if todo.turns:
            try:
                current = await _summarise(
                    event, current, todo.turns, summaries=summaries, model=model, settings=settings
                )
            except StaleVersion as error:
                stale = error
                continue
        version = f"{session.session_id}:{current.version}"
        await publisher.publish(MemoryChanged.because_of(event, "summary", [version]))
        leaving = [*todo.trim_only, *(turn.turn_id for turn in todo.turns)]
        # False: the cache is at a later version by now, and the next round finds what this one left.
        await buffer.trim(session, leaving, current)
        stale = None
    if stale:
        raise stale


def _origin(turn: Turn, view: BufferView) -> tuple[str | None, str | None]:
    """The session before this one, and this one's project: the earliest turn that names one decides."""
    turns = (*view.turns, turn)
    previous = next((each.previous_session_id for each in turns if each.previous_session_id), None)
    return previous, next((each.project_id for each in turns if each.project_id), None)


async def _complete_view(turn: Turn, buffer: Buffer, summaries: SummaryStore) -> BufferView:
    """The session's buffer, with what it lost (if it did) put back from the event and the log.

    Valkey may have come back empty, or as it was a while ago: what it holds never tells what it has lost.
    """
    view = await buffer.read(turn.session)
    held = {each.turn_id for each in view.turns}
    missing = list(await summaries.uncovered(turn.session, beside=sorted(held)))
    held.update(each.turn_id for each in missing)
    if turn.turn_id not in held and not await summaries.covered(turn.session, [turn.turn_id]):
        missing.append(turn)
    if not missing:
        return view
    for each in missing:
        await buffer.append(each)
    return await buffer.read(turn.session)


async def _summarise(
    event: TurnRecorded,
    previous: Summary,
    turns: Sequence[Turn],
    *,
    summaries: SummaryStore,
    model: LanguageModel,
    settings: Settings,
) -> Summary:
    lines = await model.summarise(previous.lines, turns, settings.summary_budget_tokens)
    summary = Summary(
        session=previous.session,
        version=previous.version + 1,
        lines=checked(previous.lines, lines),
        model=model.name,
    )
    await summaries.commit(summary, turns, event.event_id())
    return summary
