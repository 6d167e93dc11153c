"""A turn goes in, memory comes out.

An agent publishes a turn. turn-ingest puts it into the buffer and says so on `turn.recorded`. Three
subscribers, who know nothing of one another, make a summary, entities and episodes of it. A context brings
back what the next prompt needs.
"""

from lamina.api import ContextRequest
from lamina.events import MemoryChanged, TurnPublished, TurnRecorded
from lamina.model import Kind, Scope
from tests.builders import a_user
from tests.fundamentals.pipeline import Pipeline


async def test_the_journey_of_one_turn(pipeline: Pipeline) -> None:
    user = a_user()

    # An agent says what happened. The short form stands for two events; ids and times are filled in.
    turn = await pipeline.agent.publish(
        {
            "app": "shop",
            "user_id": user,
            "session_id": "monday",
            "user": "I prefer dark mode. Never run migrations against production.",
            "assistant": "Noted, both.",
        }
    )
    assert [type(event) for event in pipeline.topic.published] == [TurnPublished]

    # turn-ingest takes it in, and announces it with the whole turn inside.
    await pipeline.deliver(pipeline.topic.published[:1])
    recorded = pipeline.topic.published[-1]
    assert isinstance(recorded, TurnRecorded)
    assert recorded.turn == turn
    assert (await pipeline.buffer.read(turn.session)).turns == (turn,)

    # The subscribers do their work; each announces what it committed.
    await pipeline.run()
    stages = {event.stage for event in pipeline.topic.published if isinstance(event, MemoryChanged)}
    assert stages == {"entities", "episodes"}  # one turn is not enough for a summary

    # In another session, weeks later, the user asks something.
    context = await pipeline.context(
        ContextRequest(app="shop", user_id=user, session_id="friday", query="Which theme do I like?")
    )
    entities = {(entity.kind, entity.scope, entity.text) for entity in context.entities}
    assert (Kind.PREFERENCE, Scope.GLOBAL, "I prefer dark mode.") in entities
    assert (Kind.VETO, Scope.GLOBAL, "Never run migrations against production.") in entities
    assert "dark mode" in context.prompt
    assert context.degraded == ()

    # And the turn itself can always be had back, exactly.
    assert await pipeline.episodes.turn(turn.session, turn.turn_id) == turn
