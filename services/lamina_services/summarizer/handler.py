"""What the summarizer does with a recorded turn."""

from collections.abc import Sequence

from lamina.dead_letters import Failure, parked
from lamina.envelope import encode
from lamina.errors import Forgotten, Permanent, StaleVersion
from lamina.events import MemoryChanged, TurnRecorded
from lamina.model import Summary, Turn
from lamina.ports import Buffer, BufferView, Clock, LanguageModel, Publisher, SummaryStore, TokenCounter
from lamina.settings import Settings
from lamina.telemetry import counted_dead_letter, trace_id, traced
from lamina_services.summarizer.decision import plan, sizes_of
from lamina_services.summarizer.folding import fold

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
    clock: Clock,
    settings: Settings,
) -> None:
    """Summarise what the buffer should let go of, then let go of it.

    In this order: park what the model refuses, commit, announce, trim. A redelivery finds what is committed
    and not yet trimmed, and takes up from there. StaleVersion where other workers keep committing first.
    Forgotten where the turn is.
    """
    session = event.turn.session
    budget = settings.summary_budget_tokens
    stale: StaleVersion | None = None
    for _ in range(ROUNDS):
        # A turn that was set aside comes again from its dead letter: the model may take it by now.
        again = await summaries.is_set_aside(session, event.turn.turn_id)
        view = await _complete_view(event.turn, buffer, summaries)
        # In this order: what is covered is then covered by `current` or an earlier version.
        covered = await summaries.covered(session, [turn.turn_id for turn in view.turns])
        current = await summaries.latest(session, *_origin(event.turn, view))
        if await _let_go_of_forgotten(event.turn, view, current, buffer, summaries):
            continue
        todo = plan(view, covered=covered, tokens=sizes_of(view.turns, tokens), settings=settings)
        turns = (event.turn,) if again else todo.turns
        if todo.idle and not again:
            return
        if turns:
            folded = await fold(current.lines, turns, model=model, budget=budget)
            if again and folded.refused:
                raise folded.refused[0][1]
            if await summaries.forgotten([turn for turn, _ in folded.refused]):
                continue  # meanwhile: then it must not be parked
            await _park(folded.refused, publisher, clock)
            current = Summary(
                session=session,
                version=current.version + 1,
                lines=folded.lines,
                model=model.name,
                generation=current.generation,
            )
            aside = [turn.turn_id for turn, _ in folded.refused]
            try:
                current = await summaries.commit(current, turns, event.event_id(), set_aside=aside)
            except StaleVersion as error:
                stale = error
                continue
        version = f"{session.session_id}:{current.version}"
        await publisher.publish(MemoryChanged.because_of(event, "summary", [version]))
        leaving = [*todo.trim_only, *(turn.turn_id for turn in turns)]
        # False: the cache is at a later version by now, and the next round finds what this one left.
        await buffer.trim(session, leaving, current)
        stale = None
    if stale:
        raise stale


async def _park(refused: Sequence[tuple[Turn, Permanent]], publisher: Publisher, clock: Clock) -> None:
    """Park the events of these turns. Before the commit: after a crash in between they are parked again."""
    for turn, error in refused:
        failure = Failure.because(error, service="summarizer", parked_at=clock.now(), trace_id=trace_id())
        await publisher.park("summarizer", parked(traced(encode(TurnRecorded(turn=turn))), failure))
        counted_dead_letter("summarizer", error)


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
        try:
            await buffer.append(each)
        except Forgotten:
            if each.turn_id == turn.turn_id:
                raise
    return await buffer.read(turn.session)


async def _let_go_of_forgotten(
    turn: Turn, view: BufferView, current: Summary, buffer: Buffer, summaries: SummaryStore
) -> bool:
    """Take out of the buffer what it should not hold any more; False where there is nothing of it.

    Asked after `current` was read: what is forgotten later makes that out of date. A cached summary that the
    database does not have was forgotten between its commit and the trim. Forgotten where the turn itself is.
    """
    gone = await summaries.forgotten([*view.turns, turn])
    cached = view.summary
    lost = (
        cached is not None
        and cached.version >= current.version
        and (cached.version, cached.lines) != (current.version, current.lines)
    )
    if gone or lost:
        await buffer.drop(turn.session, sorted(gone), summary=lost)
    if turn.turn_id in gone:
        raise Forgotten(f"turn {turn.turn_id} was forgotten at its user's wish")
    return bool(gone) or lost
