"""Plays a story on a running stack: publishes its turns, waits for the workers, and asks the question."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lamina.api import ContextResponse
from lamina.client import LaminaClient, TurnPublisher
from lamina.events import TurnRecorded
from lamina.model import SessionKey, Turn
from lamina.turns import complete_turn
from lamina_services.cli.demo.story import APP, Session, Story, turn_fields, user_of
from lamina_services.cli.demo.tiers import Tiers, processed, read_tiers
from lamina_services.local.home import StackState
from lamina_services.local.polling import until

TRIGGER = 3
KEEP = 2
ENVIRONMENT: Mapping[str, str] = {
    "LAMINA_SUMMARY_TRIGGER_TURNS": str(TRIGGER),
    "LAMINA_SUMMARY_KEEP_TURNS": str(KEEP),
    "LAMINA_TOPIC_PREFIX": "",
    "PUBSUB_EMULATOR_HOST": "",
    "LAMINA_MODEL": os.environ.get("LAMINA_MODEL", "offline"),
}
"""What the story needs: a summary after few turns, topics of its own, and no model calls unless asked for."""

_CONSUMERS = ("entity-extractor", "episodic-embedder")
_TOKEN_BUDGET = 4_000


@dataclass(frozen=True)
class Played:
    """What came of it."""

    story: Story
    session: SessionKey
    published: tuple[Turn, ...]
    """The main session's turns, as they were published."""
    tiers: Tiers
    context: ContextResponse


async def play(
    story: Story, state: StackState, *, say: Callable[[str], None] = lambda _: None, timeout_s: float = 60
) -> Played:
    """Play the whole story. DependencyUnavailable where the workers are not done in time (in seconds)."""
    began = datetime.now(UTC) - timedelta(days=1)
    turns = [turn for session in story.sessions for turn in _turns(story, session, began)]
    async with TurnPublisher.connect(state.project, emulator=state.pubsub) as publisher:
        for turn in turns:
            await publisher.publish(turn)
            say(f"published {turn.turn_id} of {turn.user_id}")
    session = SessionKey(app=APP, user_id=user_of(story, story.main), session_id=story.main.session_id)
    await _until_done(state, turns, session, timeout_s)
    say("every worker is done")
    tiers = await read_tiers(state, session)
    question = story.question
    async with LaminaClient(state.context_url) as memory:
        context = await memory.context(
            app=APP,
            user_id=session.user_id,
            session_id=question.session_id,
            previous_session_id=question.previous_session_id,
            project_id=question.project_id,
            query=question.text,
            token_budget=_TOKEN_BUDGET,
            deadline_ms=10_000,
        )
    say("the context is assembled")
    own = tuple(turn for turn in turns if turn.session == session)
    return Played(story, session, own, tiers, context)


def _turns(story: Story, session: Session, began: datetime) -> list[Turn]:
    return [
        complete_turn(turn_fields(story, session, position), at=began + timedelta(minutes=position))
        for position in range(len(session.turns))
    ]


async def _until_done(state: StackState, turns: list[Turn], session: SessionKey, timeout_s: float) -> None:
    users = sorted({turn.user_id for turn in turns})
    wanted = {str(TurnRecorded(turn=turn).event_id()) for turn in turns}
    left: dict[str, int] = {}

    async def done() -> bool:
        finished = await asyncio.gather(*(processed(state, APP, users, name) for name in _CONSUMERS))
        left.update({n: len(wanted - ids) for n, ids in zip(_CONSUMERS, finished, strict=True)})
        in_buffer = len((await read_tiers(state, session)).buffer)
        left["summarizer"] = max(0, in_buffer - KEEP)
        return not any(left.values())

    def waiting() -> str:
        return ", ".join(f"{name} has {count} turns to do" for name, count in left.items() if count)

    await until(done, timeout_s=timeout_s, what="the pipeline", why=waiting, every_s=0.1)
