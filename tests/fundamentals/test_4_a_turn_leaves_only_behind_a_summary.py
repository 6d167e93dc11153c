"""The buffer is short on purpose. A turn leaves it only when a committed summary covers it.

The next session starts from that summary; and if the buffer is lost, it is filled again from the log.
"""

from lamina.api import ContextRequest
from tests.builders import a_session, a_turn, a_user
from tests.fundamentals.pipeline import Pipeline


async def test_the_oldest_turns_make_room_and_the_next_session_remembers_them(pipeline: Pipeline) -> None:
    user = a_user()
    for number, text in enumerate(("We decided to use gRPC.", "What else?", "And then?", "Go on.")):
        await pipeline.agent.publish(a_turn(user, number, user=text))
        await pipeline.run()

    view = await pipeline.buffer.read(a_session(user))
    assert [turn.turn_id for turn in view.turns] == ["t2", "t3"]
    assert view.summary is not None
    assert "gRPC" in view.summary.render()

    context = await pipeline.context(
        ContextRequest(app="shop", user_id=user, session_id="s2", previous_session_id="s1")
    )
    assert context.summary is not None
    assert (context.summary.session_id, "gRPC" in context.summary.text) == ("s1", True)


async def test_a_lost_buffer_is_rebuilt_and_nothing_is_summarised_twice(pipeline: Pipeline) -> None:
    user = a_user()
    turns = [a_turn(user, number, user=f"Question {number}?") for number in range(5)]
    for turn in turns[:4]:
        await pipeline.agent.publish(turn)
        await pipeline.run()
    pipeline.buffer.lose()

    context = await pipeline.context(ContextRequest(app="shop", user_id=user, session_id="s1"))
    assert [turn.turn_id for turn in context.recent] == ["t2", "t3"], "read from the log"

    await pipeline.agent.publish(turns[4])
    await pipeline.run()
    view = await pipeline.buffer.read(a_session(user))
    assert [turn.turn_id for turn in view.turns] == ["t3", "t4"]
    covered = await pipeline.summaries.covered(a_session(user), [turn.turn_id for turn in turns])
    assert covered == {"t0", "t1", "t2"}
