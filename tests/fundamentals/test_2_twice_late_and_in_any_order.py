"""Pub/Sub delivers at least once, and in no particular order. The memory that results is always the same.

Every step is idempotent by an id derived from the turn, and every state is a function of the *set* of turns.
"""

import itertools

from lamina.api import ContextRequest
from tests.builders import a_session, a_turn, a_user
from tests.fundamentals.pipeline import Pipeline

SAID = ("We use tabs for indentation.", "From now on we use spaces for indentation.", "I prefer dark mode.")


async def memory_after(pipeline: Pipeline, order: tuple[int, ...]) -> tuple[object, ...]:
    user = a_user()
    turns = [a_turn(user, number, user=text) for number, text in enumerate(SAID)]
    for number in order:
        await pipeline.agent.publish(turns[number])
    await pipeline.run()
    await pipeline.run()
    view = await pipeline.buffer.read(a_session(user))
    context = await pipeline.context(
        ContextRequest(app="shop", user_id=user, session_id="later", query="indentation", max_episodes=20)
    )
    return (
        [turn.turn_id for turn in view.turns],
        view.summary.render() if view.summary else None,
        sorted((entity.subject, entity.text, entity.said_at) for entity in context.entities),
        sorted(episode.text for episode in context.episodes),
    )


async def test_every_order_and_any_repetition_ends_in_the_same_memory(pipeline: Pipeline) -> None:
    calm = await memory_after(pipeline, (0, 1, 2))
    assert calm[0] == ["t1", "t2"], "three turns are one too many for the buffer, so the oldest left it"
    for order in itertools.permutations(range(3)):
        assert await memory_after(pipeline, (*order, *order[:2])) == calm, order


async def test_what_was_said_later_holds_even_when_it_arrives_first(pipeline: Pipeline) -> None:
    user = a_user()
    old, new = (a_turn(user, number, user=text) for number, text in enumerate(SAID[:2]))
    await pipeline.agent.publish(new)
    await pipeline.agent.publish(old)
    await pipeline.run()
    context = await pipeline.context(
        ContextRequest(app="shop", user_id=user, session_id="later", query="indentation")
    )
    assert [entity.turn_id for entity in context.entities] == [new.turn_id]
