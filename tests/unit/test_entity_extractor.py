"""The entity extractor: what may be learned, and how a redelivery goes on where the first one stopped."""

import pytest

from lamina.errors import ModelRefused, ModelUnavailable
from lamina.event import Speaker
from lamina.events import MemoryChanged, TurnRecorded
from lamina.model import Kind, Scope
from lamina.testing.entities import InMemoryEntities
from lamina.testing.models import HashEmbedder, ScriptedModel
from lamina.testing.publisher import InMemoryPublisher
from lamina_services.entity_extractor.decision import admissible
from lamina_services.entity_extractor.handler import on_turn_recorded
from tests.builders import a_statement, a_turn, a_user

TURN = a_turn(a_user())
EVENT = TurnRecorded(turn=TURN)


class Service:
    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.entities, self.embedder, self.topic = InMemoryEntities(), HashEmbedder(), InMemoryPublisher()

    async def take(self, event: TurnRecorded = EVENT) -> None:
        await on_turn_recorded(
            event, entities=self.entities, model=self.model, embedder=self.embedder, publisher=self.topic
        )

    def known(self) -> list[str]:
        return [each.statement.text for each in self.entities.entities(TURN.app, TURN.user_id)]

    async def without_vector(self) -> int:
        ids = [each.entity_id for each in self.entities.entities(TURN.app, TURN.user_id)]
        return len(await self.entities.unembedded(TURN, ids))


def test_only_the_user_sets_preferences_rules_and_vetoes() -> None:
    by_agent = [
        a_statement(TURN, f"as {kind}", kind=kind, said_by=Speaker.AGENT, subject=kind) for kind in Kind
    ]
    assert [statement.kind for statement in admissible(by_agent, TURN)] == [Kind.DECISION, Kind.FACT]


def test_a_tools_statement_is_never_admitted() -> None:
    assert admissible([a_statement(TURN, "x", said_by=Speaker.TOOL, kind=Kind.FACT)], TURN) == ()


def test_a_statement_belongs_to_its_turn_whatever_the_model_wrote() -> None:
    (learned,) = admissible([a_statement(a_turn(a_user(), 9, session="other"), "I like tabs")], TURN)
    assert (learned.session_id, learned.turn_id) == (TURN.session_id, TURN.turn_id)


def test_a_repetition_inside_a_turn_is_one_statement_and_ordinals_have_no_gap() -> None:
    said = [
        a_statement(TURN, "I like tabs"),
        a_statement(TURN, "I like tabs"),
        a_statement(TURN, "no spaces"),
    ]
    assert [(each.ordinal, each.text) for each in admissible(said, TURN)] == [
        (0, "I like tabs"),
        (1, "no spaces"),
    ]


async def test_what_was_learned_is_announced_and_gets_its_vector() -> None:
    service = Service(ScriptedModel(extractions=[[a_statement(TURN, "I like tabs", scope=Scope.GLOBAL)]]))
    await service.take()
    assert service.known() == ["I like tabs"]
    assert await service.without_vector() == 0
    (announced,) = service.topic.published
    assert isinstance(announced, MemoryChanged)
    assert (announced.stage, len(announced.changed)) == ("entities", 1)


async def test_a_redelivery_asks_the_model_nothing_and_announces_the_same() -> None:
    service = Service(ScriptedModel(extractions=[[a_statement(TURN, "I like tabs")]]))
    await service.take()
    await service.take()
    assert len(service.model.calls) == 1
    first, second = service.topic.published
    assert first.event_id() == second.event_id()


async def test_an_embedder_that_is_down_costs_the_vectors_only_until_the_redelivery() -> None:
    service = Service(ScriptedModel(extractions=[[a_statement(TURN, "I like tabs")]]))
    service.embedder.failures.append(ModelUnavailable("down"))
    with pytest.raises(ModelUnavailable):
        await service.take()
    assert service.known() == ["I like tabs"]
    await service.take()
    assert await service.without_vector() == 0


async def test_a_refusal_goes_up_to_be_parked_and_leaves_nothing() -> None:
    service = Service(ScriptedModel(extractions=[ModelRefused("safety")]))
    with pytest.raises(ModelRefused):
        await service.take()
    assert service.known() == []
    assert service.topic.published == []
