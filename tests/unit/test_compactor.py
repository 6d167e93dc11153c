"""The compactor: bounded rounds, and nothing archived behind an answer that cannot be trusted."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from lamina.envelope import Incoming
from lamina.errors import InvalidEvent, ModelAnswerInvalid, ModelUnavailable
from lamina.events import CompactionDue, CompactionRequested, MemoryChanged
from lamina.model import SummaryLine
from lamina.models.tokens import EstimatedTokens
from lamina.ports import OldEpisode
from lamina.settings import Settings
from lamina.testing.compactions import InMemoryCompactions
from lamina.testing.entities import InMemoryEntities
from lamina.testing.episodes import InMemoryEpisodes
from lamina.testing.models import ScriptedModel
from lamina.testing.publisher import InMemoryPublisher
from lamina_services.compactor.decision import checked, tick_of
from lamina_services.compactor.handler import on_compaction_due, on_compaction_requested
from lamina_services.episodic_embedder.decision import chunks_of
from tests.builders import BEGAN, a_turn, a_user

NOW = BEGAN + timedelta(days=60)


class Service:
    def __init__(self, model: ScriptedModel | None = None, batch: int = 4) -> None:
        self.model = model or ScriptedModel()
        self.episodes, self.topic = InMemoryEpisodes(), InMemoryPublisher()
        self.compactions = InMemoryCompactions(self.episodes, InMemoryEntities())
        self.settings = Settings(compaction_after_days=30, compaction_batch=batch)

    async def remember(self, user: str, turns: int) -> None:
        for number in range(turns):
            turn = a_turn(user, number)
            await self.episodes.record(turn, chunks_of(turn))

    async def tick(self) -> None:
        await on_compaction_due(
            CompactionDue(due_at=NOW),
            compactions=self.compactions,
            publisher=self.topic,
            settings=self.settings,
        )

    async def compact(self, request: CompactionRequested) -> None:
        await on_compaction_requested(
            request,
            compactions=self.compactions,
            model=self.model,
            publisher=self.topic,
            tokens=EstimatedTokens(),
            settings=self.settings,
        )

    async def run(self) -> None:
        for request in iter(self._next_request, None):
            await self.compact(request)

    def _next_request(self) -> CompactionRequested | None:
        waiting = [each for each in self.topic.published if isinstance(each, CompactionRequested)]
        if waiting:
            self.topic.published.remove(waiting[0])
        return waiting[0] if waiting else None

    def archived(self) -> int:
        return sum(each.archived_by is not None for each in self.episodes.all())


async def test_a_tick_asks_for_each_user_that_has_old_episodes_and_for_no_other() -> None:
    service = Service()
    old, young = a_user(), a_user()
    await service.remember(old, 1)
    fresh = a_turn(young, occurred_at=NOW - timedelta(days=1))
    await service.episodes.record(fresh, chunks_of(fresh))
    await service.tick()
    (request,) = service.topic.published
    assert isinstance(request, CompactionRequested)
    assert (request.user_id, request.before) == (old, NOW - timedelta(days=30))


async def test_a_redelivered_tick_asks_for_the_same() -> None:
    service = Service()
    await service.remember(a_user(), 1)
    await service.tick()
    await service.tick()
    first, second = service.topic.published
    assert first.event_id() == second.event_id()


async def test_a_long_past_is_compacted_in_bounded_rounds_until_nothing_old_is_left() -> None:
    service = Service(batch=4)
    await service.remember(a_user(), 7)
    await service.tick()
    await service.run()
    sizes = [len(arguments[0]) for _, arguments in service.model.calls]
    assert sizes == [4, 4, 4, 2]
    assert service.archived() == 14


async def test_a_redelivered_request_compacts_once_and_announces_the_same() -> None:
    service = Service(batch=100)
    await service.remember(a_user(), 2)
    await service.tick()
    (request,) = service.topic.published
    assert isinstance(request, CompactionRequested)
    await service.compact(request)
    await service.compact(request)
    assert len(service.model.calls) == 1
    announced = [each for each in service.topic.published if isinstance(each, MemoryChanged)]
    assert announced[0].event_id() == announced[1].event_id()


@pytest.mark.parametrize("failure", [ModelUnavailable("down"), ModelAnswerInvalid("no"), ()])
async def test_a_model_that_fails_or_says_nothing_leaves_everything_as_it_was(failure: object) -> None:
    service = Service(ScriptedModel(consolidations=[failure]))
    await service.remember(a_user(), 2)
    await service.tick()
    with pytest.raises((ModelUnavailable, ModelAnswerInvalid)):
        await service.run()
    assert service.archived() == 0


def an_episode(turn_id: str = "t1", words: int = 100) -> OldEpisode:
    return OldEpisode(
        episode_id=uuid.UUID(int=1),
        session_id="s1",
        turn_id=turn_id,
        speaker="user",
        text="word " * words,
        occurred_at=BEGAN,
    )


def a_line(text: str, turn_id: str = "t1") -> SummaryLine:
    return SummaryLine(kind="digest", text=text, turn_id=turn_id, at=BEGAN)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "nothing was said"),
        ([a_line(" ")], "nothing was said"),
        ([a_line("a good account of it all", "t9")], "not in the batch"),
        ([a_line("ok")], "would shrink"),
    ],
)
def test_a_suspicious_consolidation_is_refused(lines: list[SummaryLine], why: str) -> None:
    with pytest.raises(ModelAnswerInvalid, match=why):
        checked(lines, [an_episode()], model="m", minimum_ratio=0.1, tokens=EstimatedTokens())


def test_a_sound_consolidation_covers_exactly_its_batch() -> None:
    result = checked(
        [a_line("twenty good words " * 7)],
        [an_episode()],
        model="m",
        minimum_ratio=0.1,
        tokens=EstimatedTokens(),
    )
    assert result.covers == (an_episode().episode_id,)


def test_a_scheduler_that_cannot_tell_the_time_is_due_when_it_published() -> None:
    at = datetime(2026, 5, 1, 3, tzinfo=UTC)
    assert tick_of(Incoming(b"{}", publish_time=at)) == CompactionDue(due_at=at)
    assert tick_of(Incoming(b"", publish_time=at)) == CompactionDue(due_at=at)
    given = b'{"due_at": "2026-04-01T00:00:00Z"}'
    assert tick_of(Incoming(given, publish_time=at)).due_at == datetime(2026, 4, 1, tzinfo=UTC)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"due_at": "soon"}'])
def test_a_tick_without_any_time_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidEvent):
        tick_of(Incoming(body))
