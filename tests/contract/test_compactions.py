"""What every compaction store promises: the one on PostgreSQL and the one in memory."""

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from lamina.errors import ConstraintViolated, NotFound, StaleVersion
from lamina.events import CompactionRequested
from lamina.model import Scope, SummaryLine, Turn
from lamina.ports import CompactionStore, Consolidation, EntityStore, EpisodeStore, OldEpisode
from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from lamina.settings import Settings
from lamina.testing.compactions import InMemoryCompactions
from lamina.testing.entities import InMemoryEntities
from lamina.testing.episodes import InMemoryEpisodes
from tests.builders import APP, BEGAN, a_chunk, a_statement, a_turn, a_user
from tests.fixtures_postgres import TestServer

LATER = BEGAN + timedelta(days=1)
RETENTION = Settings(archive_days=90, session_days=60, processed_days=30)


@dataclass
class Stores:
    """A compaction store, and the stores whose rows it archives and expires."""

    compactions: CompactionStore
    forgetting: CompactionStore
    """The same, with retention set."""
    episodes: EpisodeStore
    entities: EntityStore

    async def record(self, turn: Turn, *texts: str) -> None:
        chunks = [a_chunk(n, text) for n, text in enumerate(texts or (f"said in {turn.turn_id}",))]
        await self.episodes.record(turn, chunks)

    async def old(self, request: CompactionRequested, size: int = 100) -> tuple[OldEpisode, ...]:
        return (await self.compactions.batch(request, size)).episodes


@pytest_asyncio.fixture(params=["memory", "postgres"], loop_scope="session")
async def stores(request: pytest.FixtureRequest, postgres: TestServer) -> AsyncIterator[Stores]:
    if request.param == "memory":
        episodes, entities = InMemoryEpisodes(), InMemoryEntities()
        compactions = InMemoryCompactions(episodes, entities)
        forgetting = InMemoryCompactions(episodes, entities, RETENTION)
        forgetting.compactions = compactions.compactions
        yield Stores(compactions, forgetting, episodes, entities)
        return
    made = (
        await postgres.create()
    )  # plan and expire look across users, so each test has a database of its own
    async with (
        made.open("lamina_compactor", size=2) as compactor,
        made.open("lamina_episodic_embedder", size=2) as embedder,
        made.open("lamina_entity_extractor", size=2) as extractor,
    ):
        yield Stores(
            PostgresCompactions(compactor, Settings()),
            PostgresCompactions(compactor, RETENTION),
            PostgresEpisodes(embedder),
            PostgresEntities(extractor),
        )


def a_request(user: str, *, project: str | None = None, before: datetime = LATER) -> CompactionRequested:
    return CompactionRequested(app=APP, user_id=user, project_id=project, before=before)


def a_consolidation(episodes: Sequence[OldEpisode]) -> Consolidation:
    line = SummaryLine(
        kind="digest", text="They talked", turn_id=episodes[0].turn_id, at=episodes[0].occurred_at
    )
    return Consolidation(lines=(line,), covers=tuple(e.episode_id for e in episodes), model="test-1")


async def compact(stores: Stores, request: CompactionRequested) -> uuid.UUID:
    result = a_consolidation(await stores.old(request))
    return await stores.compactions.apply(request, result, request.event_id())


async def test_the_plan_names_each_users_project_that_has_old_episodes(stores: Stores) -> None:
    await stores.record(a_turn("ana", 1))
    await stores.record(a_turn("ana", 2, project_id="CloudRetail"))
    await stores.record(a_turn("bo", 3, project_id="CloudBank"))
    await stores.record(a_turn("cy", 1, occurred_at=LATER))
    assert list(await stores.compactions.plan(LATER)) == [
        a_request("ana"),
        a_request("ana", project="CloudRetail"),
        a_request("bo", project="CloudBank"),
    ]


async def test_a_batch_holds_the_oldest_turns_whole(stores: Stores) -> None:
    for number in (3, 1, 2):
        await stores.record(a_turn("ana", number), "question", "answer")
    batch = await stores.compactions.batch(a_request("ana"), 3)
    assert [(episode.turn_id, episode.text) for episode in batch.episodes] == [
        ("t1", "question"),
        ("t1", "answer"),
        ("t2", "question"),
        ("t2", "answer"),
    ]
    assert batch.more
    assert not (await stores.compactions.batch(a_request("ana"), 5)).more


async def test_a_batch_keeps_to_its_user_and_project(stores: Stores) -> None:
    await stores.record(a_turn("ana", 1, project_id="CloudRetail"), "retail")
    await stores.record(a_turn("ana", 2, project_id="CloudBank"), "bank")
    await stores.record(a_turn("bo", 3, project_id="CloudRetail"), "of bo")
    assert [e.text for e in await stores.old(a_request("ana", project="CloudRetail"))] == ["retail"]
    assert await stores.old(a_request("ana")) == ()


async def test_what_a_compaction_covers_is_archived_and_nothing_else(stores: Stores) -> None:
    for number in (1, 2, 3):
        await stores.record(a_turn("ana", number))
    request = a_request("ana")
    two = (await stores.compactions.batch(request, 2)).episodes
    await stores.compactions.apply(request, a_consolidation(two), request.event_id())
    assert [episode.turn_id for episode in await stores.old(request)] == ["t3"]


async def test_nothing_is_planned_once_all_is_archived(stores: Stores) -> None:
    await stores.record(a_turn("ana"))
    await compact(stores, a_request("ana"))
    assert list(await stores.compactions.plan(LATER)) == []


async def test_an_event_applied_before_gives_the_same_compaction(stores: Stores) -> None:
    await stores.record(a_turn("ana", 1))
    request = a_request("ana")
    assert await stores.compactions.applied(request) is None
    result = a_consolidation(await stores.old(request))
    first = await stores.compactions.apply(request, result, request.event_id())
    await stores.record(a_turn("ana", 2))
    again = a_consolidation(await stores.old(request))
    assert await stores.compactions.apply(request, again, request.event_id()) == first
    assert await stores.compactions.applied(request) == first
    assert [episode.turn_id for episode in await stores.old(request)] == ["t2"]


async def test_two_compactions_never_cover_the_same_episode(stores: Stores) -> None:
    await stores.record(a_turn("ana"))
    first, second = a_request("ana"), a_request("ana", before=LATER + timedelta(hours=1))
    result = a_consolidation(await stores.old(first))
    await stores.compactions.apply(first, result, first.event_id())
    with pytest.raises(StaleVersion):
        await stores.compactions.apply(second, result, second.event_id())


async def test_nobody_archives_another_users_episodes(stores: Stores) -> None:
    await stores.record(a_turn("ana"))
    theirs = a_consolidation(await stores.old(a_request("ana")))
    with pytest.raises(StaleVersion):
        await stores.compactions.apply(a_request("bo"), theirs, uuid.uuid4())
    assert len(await stores.old(a_request("ana"))) == 1


async def test_a_line_that_stands_on_nothing_covered_is_refused_and_nothing_is_archived(
    stores: Stores,
) -> None:
    await stores.record(a_turn("ana"))
    request = a_request("ana")
    sound = a_consolidation(await stores.old(request))
    invented = sound.lines[0].model_copy(update={"turn_id": "t404"})
    with pytest.raises(ConstraintViolated):
        await stores.compactions.apply(
            request, Consolidation((invented,), sound.covers, "test-1"), request.event_id()
        )
    assert len(await stores.old(request)) == 1


async def test_undoing_brings_the_episodes_back_once(stores: Stores) -> None:
    for number in (1, 2):
        await stores.record(a_turn("ana", number))
    request = a_request("ana")
    compaction_id = await compact(stores, request)
    assert await stores.compactions.undo(APP, "ana", compaction_id) == 2
    assert await stores.compactions.undo(APP, "ana", compaction_id) == 0


async def test_an_undo_lasts_whatever_tick_comes_next(stores: Stores) -> None:
    for number in (1, 2):
        await stores.record(a_turn("ana", number))
    await stores.compactions.undo(APP, "ana", await compact(stores, a_request("ana")))
    await stores.record(a_turn("ana", 3))
    later = a_request("ana").model_copy(update={"before": a_request("ana").before + timedelta(days=1)})
    for request in (a_request("ana"), later):
        assert [episode.turn_id for episode in await stores.old(request)] == ["t3"]


async def test_nobody_is_planned_for_what_an_undo_brought_back(stores: Stores) -> None:
    await stores.record(a_turn("ana"))
    await stores.record(a_turn("bo"))
    await stores.compactions.undo(APP, "ana", await compact(stores, a_request("ana")))
    assert list(await stores.compactions.plan(LATER)) == [a_request("bo")]


async def test_a_compaction_under_way_takes_nothing_that_an_undo_brought_back_meanwhile(
    stores: Stores,
) -> None:
    await stores.record(a_turn("ana"))
    slow = a_request("ana", before=LATER + timedelta(hours=1))
    under_way = a_consolidation(await stores.old(slow))
    await stores.compactions.undo(APP, "ana", await compact(stores, a_request("ana")))
    with pytest.raises(StaleVersion):
        await stores.compactions.apply(slow, under_way, slow.event_id())


async def test_nobody_undoes_another_users_compaction(stores: Stores) -> None:
    await stores.record(a_turn("ana"))
    compaction_id = await compact(stores, a_request("ana"))
    with pytest.raises(NotFound):
        await stores.compactions.undo(APP, "bo", compaction_id)
    with pytest.raises(NotFound):
        await stores.compactions.undo(APP, "ana", uuid.uuid4())
    assert await stores.old(a_request("ana")) == ()


async def test_without_retention_only_processed_events_expire(stores: Stores) -> None:
    turn = a_turn("ana")
    await stores.record(turn)
    await stores.entities.absorb(
        turn, [a_statement(turn, "Briefly", scope=Scope.SESSION)], "test", uuid.uuid4()
    )
    await compact(stores, a_request("ana"))
    counts = await stores.compactions.expire(datetime.now(UTC) + timedelta(days=10_000))
    assert (counts["episodes"], counts["statements"], counts["entities"]) == (0, 0, 0)


async def test_archived_episodes_expire_a_while_after_their_compaction(stores: Stores) -> None:
    await stores.record(a_turn("ana", 1))
    await compact(stores, a_request("ana"))
    await stores.record(a_turn("ana", 2))
    assert (await stores.forgetting.expire(datetime.now(UTC)))["episodes"] == 0
    assert (await stores.forgetting.expire(datetime.now(UTC) + timedelta(days=91)))["episodes"] == 1
    assert [episode.turn_id for episode in await stores.old(a_request("ana"))] == ["t2"]
    assert await stores.episodes.turn(a_turn("ana", 1).session, "t1") == a_turn("ana", 1)


async def test_what_was_said_for_a_session_expires_a_while_after_it_was_last_said(stores: Stores) -> None:
    user = a_user()
    first, second, lasting = a_turn(user, 1), a_turn(user, 2), a_turn(user, 3)
    for turn, text in ((first, "Briefly"), (second, "At length")):
        said = a_statement(turn, text, subject="style", scope=Scope.SESSION)
        await stores.entities.absorb(turn, [said], "test", uuid.uuid4())
    await stores.entities.absorb(lasting, [a_statement(lasting, "Dark")], "test", uuid.uuid4())
    at_the_first = first.occurred_at + timedelta(days=60, seconds=1)
    assert (await stores.forgetting.expire(at_the_first))["entities"] == 0
    counts = await stores.forgetting.expire(second.occurred_at + timedelta(days=60, seconds=1))
    assert (counts["statements"], counts["entities"]) == (2, 2)
    assert [view.text for view in await stores.entities.known(lasting)] == ["Dark"]
