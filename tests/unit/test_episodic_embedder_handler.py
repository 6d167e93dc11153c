"""The episodic embedder: the turn and its words first, its vectors when the embedder answers."""

import pytest

from lamina.errors import ModelUnavailable
from lamina.events import MemoryChanged, TurnRecorded
from lamina.testing.episodes import InMemoryEpisodes
from lamina.testing.models import HashEmbedder
from lamina.testing.publisher import InMemoryPublisher
from lamina_services.episodic_embedder.handler import SLICE, on_turn_recorded
from tests.builders import a_turn, a_user

TURN = a_turn(a_user(), user="Where is the log?", assistant="In the cellar.")
EVENT = TurnRecorded(turn=TURN)


class Service:
    def __init__(self) -> None:
        self.episodes, self.embedder, self.topic = InMemoryEpisodes(), HashEmbedder(), InMemoryPublisher()

    async def take(self, event: TurnRecorded = EVENT) -> None:
        await on_turn_recorded(event, episodes=self.episodes, embedder=self.embedder, publisher=self.topic)


async def test_a_turn_is_logged_cut_embedded_and_announced() -> None:
    service = Service()
    await service.take()
    assert await service.episodes.turn(TURN.session, TURN.turn_id) == TURN
    held = service.episodes.all()
    assert [each.chunk.text for each in held] == [
        "[2026-03-01] user: Where is the log?",
        "[2026-03-01] agent: In the cellar.",
    ]
    assert all(each.vector is not None and each.model == "hash/1" for each in held)
    (announced,) = service.topic.published
    assert isinstance(announced, MemoryChanged)
    assert (announced.stage, announced.changed) == ("episodes", (TURN.turn_id,))


async def test_a_redelivery_changes_nothing_and_announces_the_same() -> None:
    service = Service()
    await service.take()
    before = service.episodes.all()
    await service.take()
    assert service.episodes.all() == before
    first, second = service.topic.published
    assert first.event_id() == second.event_id()


async def test_a_long_turn_keeps_what_was_embedded_before_the_embedder_failed() -> None:
    service = Service()
    lines = "\n".join(f"line {number} says something of its own" for number in range(3000))
    answer = {"function_response": {"name": "run", "response": {"output": lines}}}
    event = {"author": "coder", "content": {"role": "user", "parts": [answer]}}
    long = TurnRecorded(turn=a_turn(a_user(), user=None, assistant=None, events=[event]))
    service.embedder.failures = [None, ModelUnavailable("down")]
    with pytest.raises(ModelUnavailable):
        await service.take(long)
    held = service.episodes.all()
    assert sum(each.vector is not None for each in held) == SLICE < len(held)
    asked = service.embedder.asked
    await service.take(long)
    assert all(each.vector is not None for each in held)
    assert service.embedder.asked - asked == len(held) - SLICE


async def test_an_embedder_that_is_down_never_costs_the_turn() -> None:
    service = Service()
    service.embedder.failures.append(ModelUnavailable("down"))
    with pytest.raises(ModelUnavailable):
        await service.take()
    assert await service.episodes.turn(TURN.session, TURN.turn_id) == TURN
    assert service.topic.published == []
    await service.take()
    assert all(each.vector is not None for each in service.episodes.all())
