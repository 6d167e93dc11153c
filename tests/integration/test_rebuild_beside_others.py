"""A rebuild beside what else changes memory: compaction, forgetting, the services, the cached summaries."""

import uuid
from datetime import timedelta

import pytest

from lamina.errors import ModelRefused, ModelUnavailable, NotFound, StaleVersion, Transient
from lamina.events import CompactionRequested, TurnRecorded
from lamina.forgetting import Selection
from lamina.model import EpisodeChunk, SummaryLine, Turn
from lamina.ports import Consolidation
from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.forgetting import PostgresForgetting
from lamina.postgres.rebuild_entities import PostgresRebuiltEntities
from lamina.postgres.rebuild_episodes import PostgresRebuiltEpisodes
from lamina.postgres.rebuilds import PostgresRebuilds, RebuildStage
from lamina.postgres.shadows import PostgresShadow
from lamina.testing.models import HashEmbedder
from lamina.valkey.buffer import ValkeyBuffer, session_keys
from lamina.valkey.client import connect
from lamina.wiring import Wiring
from lamina_services.entity_extractor.handler import on_turn_recorded as extract
from lamina_services.episodic_embedder.decision import chunks_of
from lamina_services.rebuild.entities import EntitiesJob
from lamina_services.rebuild.episodes import EpisodesJob
from lamina_services.rebuild.job import Job, Vectors, run
from lamina_services.rebuild.patience import Patience
from lamina_services.rebuild.start import job_of
from tests.builders import APP, BEGAN, a_session, a_turn, a_user
from tests.fixtures_valkey import valkey_url
from tests.integration.rebuild_world import Model, World, silent, story, world

__all__ = ["valkey_url", "world"]


def halves(turn: Turn) -> tuple[EpisodeChunk, ...]:
    """Cuts each chunk in two."""
    return tuple(
        chunk.model_copy(update={"ordinal": 2 * chunk.ordinal + half, "text": text})
        for chunk in chunks_of(turn)
        for half, text in enumerate((chunk.text[:20], chunk.text[20:]))
    )


def firsts(turn: Turn) -> tuple[EpisodeChunk, ...]:
    """Keeps only the first chunk."""
    return chunks_of(turn)[:1]


async def cut_again(world: World, user: str, cut: object, name: str) -> None:
    rebuilds = PostgresRebuilds(world.operator)
    opened = await rebuilds.open(APP, user, "episodes", None, maker=name, embedder="hash/1")
    shadow = PostgresShadow(world.operator, opened)
    job = EpisodesJob(
        shadow,
        PostgresRebuiltEpisodes(world.operator, opened),
        vectors=Vectors(shadow, HashEmbedder(), Patience([])),
        cut=cut,  # pyright: ignore[reportArgumentType] - one of the two above
    )
    outcome = await run(rebuilds, opened, job, swap=True, progress=silent)
    assert outcome.swapped


async def compact(world: World, user: str, before: int) -> uuid.UUID:
    """Compact the turns with no project from the first `before` minutes."""
    compactions = PostgresCompactions(world.pipeline.database, world.pipeline.settings)
    request = CompactionRequested(app=APP, user_id=user, before=BEGAN + timedelta(minutes=before))
    batch = await compactions.batch(request, 100)
    line = SummaryLine(kind="digest", text="Long ago.", turn_id=batch.episodes[0].turn_id, at=BEGAN)
    covers = tuple(episode.episode_id for episode in batch.episodes)
    return await compactions.apply(request, Consolidation((line,), covers, "test"), uuid.uuid4())


async def test_a_compacted_turn_stays_archived_and_its_compaction_covers_every_new_chunk(
    world: World,
) -> None:
    user = await world.a_user_with_memory()
    compaction = await compact(world, user, 3)
    before = await world.rows(user)
    archived = {row["turn_id"] for row in before["episodes"] if row["archived_by"]}
    for cut, name in ((halves, "halves/1"), (firsts, "firsts/1"), (chunks_of, "chunks/1")):
        await cut_again(world, user, cut, name)
        rows = await world.rows(user)
        assert {row["chunker"] for row in rows["episodes"]} == {name}
        assert all(row["embedding"] for row in rows["episodes"])
        assert {row["turn_id"] for row in rows["episodes"] if row["archived_by"] == compaction} == archived
        assert {row["episode_id"] for row in rows["compaction_episodes"]} == {
            row["episode_id"] for row in rows["episodes"] if row["archived_by"]
        }

    def kept(rows: dict[str, list[dict[str, object]]]) -> list[dict[str, object]]:
        return [{**row, "recorded_at": None} for row in rows["episodes"]]

    assert kept(await world.rows(user)) == kept(before), "cut as before, woven as before"
    back = await PostgresCompactions(world.operator, world.pipeline.settings).undo(APP, user, compaction)
    assert back == len([row for row in before["episodes"] if row["archived_by"]])


async def test_an_undo_lasts_for_chunks_that_are_cut_later(world: World) -> None:
    user = await world.a_user_with_memory()
    compaction = await compact(world, user, 3)
    compactions = PostgresCompactions(world.pipeline.database, world.pipeline.settings)
    await compactions.undo(APP, user, compaction)
    await cut_again(world, user, halves, "halves/1")
    request = CompactionRequested(app=APP, user_id=user, before=BEGAN + timedelta(minutes=3))
    assert (await compactions.batch(request, 100)).episodes == ()


async def test_chunks_that_have_expired_behind_their_compaction_stay_away(world: World) -> None:
    user = await world.a_user_with_memory()
    await compact(world, user, 3)
    async with world.operator.as_user(APP, user) as conn:
        await conn.execute(
            "DELETE FROM lamina.episodes WHERE user_id = %(user)s AND archived_by IS NOT NULL", {"user": user}
        )
    left = {row["turn_id"] for row in (await world.rows(user))["episodes"]}
    await cut_again(world, user, halves, "halves/1")
    assert {row["turn_id"] for row in (await world.rows(user))["episodes"]} == left


async def test_what_was_forgotten_is_not_learned_again(world: World) -> None:
    user = await world.a_user_with_memory()
    entity = next(row for row in (await world.rows(user))["entities"] if "Vim" in row["text"])
    forgetting = PostgresForgetting(world.operator)
    await forgetting.forget(Selection(APP, user, entity_id=entity["entity_id"]))
    loud = Model("loud/1", loud=True)
    for stage in ("entities", "summaries"):
        await world.rebuild(user, stage, loud if stage == "entities" else Model("again/1"))
    rows = await world.rows(user)
    assert rows["statements"]
    assert not [row for row in (*rows["statements"], *rows["entities"]) if "VIM" in row["text"].upper()]


@pytest.mark.parametrize("stage", ["entities", "summaries"])
async def test_what_is_forgotten_while_it_is_made_again_ends_the_rebuild(
    world: World, stage: RebuildStage
) -> None:
    user = await world.a_user_with_memory()

    async def forget(turn: Turn) -> None:
        if turn.turn_id == "t5":
            await PostgresForgetting(world.operator).forget(Selection(APP, user, session_id="s1"))

    with pytest.raises(NotFound, match="ended meanwhile"):
        await world.rebuild(user, stage, Model("loud/1", loud=True, before=forget))
    assert await world.shadow(user) == 0
    await world.rebuild(user, stage, Model("loud/1", loud=True))
    rows = await world.rows(user)
    assert {row["session_id"] for name in ("statements", "summary_turns") for row in rows[name]} <= {"s2"}


async def test_a_turn_that_is_logged_between_the_build_and_the_swap_stops_the_swap(world: World) -> None:
    user = await world.a_user_with_memory()
    for stage in ("entities", "episodes"):
        await world.rebuild(user, stage, Model("loud/1", loud=True), swap=False)
    late = a_turn(user, 70, session="s2", user="My favourite fruit is the pear.")
    await world.remember([late])
    before = await world.rows(user)
    for stage in ("entities", "episodes"):
        opened = await world.open_rebuild(user, stage)
        assert opened is not None
        memory = PostgresRebuiltEntities if stage == "entities" else PostgresRebuiltEpisodes
        with pytest.raises(StaleVersion):
            await memory(world.operator, opened).swap()
    assert await world.rows(user) == before


async def test_a_swap_that_turns_keep_overtaking_says_so_and_keeps_what_was_made(world: World) -> None:
    user = await world.a_user_with_memory()
    number = 100

    class Busy(EntitiesJob):
        async def swap(self) -> None:
            nonlocal number
            number += 1
            await world.pipeline.episodes.record(a_turn(user, number, session="s9"), [])
            await super().swap()

    rebuilds = PostgresRebuilds(world.operator)
    opened = await rebuilds.open(APP, user, "entities", None, maker="loud/1", embedder="hash/1")
    shadow = PostgresShadow(world.operator, opened)
    model = Model("loud/1", loud=True)
    job: Job = Busy(
        opened,
        shadow,
        PostgresRebuiltEntities(world.operator, opened),
        model=model,
        vectors=Vectors(shadow, HashEmbedder()),
        patience=Patience([]),
    )
    with pytest.raises(StaleVersion, match="run it once more"):
        await run(rebuilds, opened, job, swap=True, progress=silent)
    assert await shadow.count() == len(model.asked) == len(story(user)) + number - 101
    assert (await world.rebuild(user, "entities", model)).swapped


async def test_a_turn_that_the_extractor_gets_after_the_swap_is_done_already(world: World) -> None:
    user = a_user()
    silent_turn = a_turn(user, 1, user="Hello there.")
    telling = a_turn(user, 2, user="I prefer dark mode.")
    for turn in (silent_turn, telling):
        await world.pipeline.episodes.record(turn, chunks_of(turn))
    await world.rebuild(user, "entities", Model("loud/1", loud=True))
    before = await world.rows(user)
    late = Model("late/1")
    for turn in (silent_turn, telling):
        await extract(
            TurnRecorded(turn=turn),
            entities=world.pipeline.entities,
            model=late,
            embedder=HashEmbedder(),
            publisher=world.pipeline.topic,
        )
    assert late.asked == []
    assert await world.rows(user) == before


async def test_statements_of_a_turn_that_the_log_does_not_have_yet_are_kept(world: World) -> None:
    user = await world.a_user_with_memory()
    early = a_turn(user, 30, session="s2", user="I prefer the wide layout.")
    await extract(
        TurnRecorded(turn=early),
        entities=world.pipeline.entities,
        model=Model(),
        embedder=HashEmbedder(),
        publisher=world.pipeline.topic,
    )
    before = [row for row in (await world.rows(user))["statements"] if row["turn_id"] == early.turn_id]
    assert before
    await world.rebuild(user, "entities", Model("loud/1", loud=True))
    after = (await world.rows(user))["statements"]
    assert [row for row in after if row["turn_id"] == early.turn_id] == before
    assert {row["extractor"] for row in after} == {"loud/1", "offline/1"}


async def test_a_turn_that_was_set_aside_is_taken_where_the_new_model_takes_it(world: World) -> None:
    user = a_user()

    def refuse(turn: Turn) -> None:
        if turn.turn_id == "t1" and turn.user_id == user:
            raise ModelRefused("blocked")

    strict = Model("strict/1", loud=True, before=refuse)
    for turn in story(user, 5):
        await world.pipeline.episodes.record(turn, [])
        await world.pipeline.buffer.append(turn)
        await world.summarise(turn, strict)
    assert {row["turn_id"] for row in (await world.rows(user))["summary_turns"] if row["set_aside"]} == {"t1"}
    outcome = await world.rebuild(user, "summaries", Model("strict/2", loud=True, before=refuse))
    assert [each.turn_id for each in outcome.difference.refused] == ["t1"]
    assert {row["turn_id"] for row in (await world.rows(user))["summary_turns"] if row["set_aside"]} == {"t1"}
    outcome = await world.rebuild(user, "summaries", Model("mild/1", loud=True))
    assert outcome.difference.counts["taken"] == 1
    rows = await world.rows(user)
    assert not any(row["set_aside"] for row in rows["summary_turns"])
    lines = rows["summaries"][-1]["lines"]
    assert lines.index('"t0!"') < lines.index('"t1!"') < lines.index('"t2!"')


async def test_the_cached_summary_of_a_session_follows_and_one_that_is_not_cached_stays_so(
    world: World, valkey_url: str
) -> None:
    client = connect(valkey_url)
    memory_buffer, world.pipeline.buffer = world.pipeline.buffer, ValkeyBuffer(client, 600)  # pyright: ignore[reportAttributeAccessIssue] - the same port
    try:
        user = await world.a_user_with_memory()
        cached = (await world.pipeline.buffer.read(a_session(user))).summary
        assert cached is not None
        await world.rebuild(user, "summaries", Model("loud/1", loud=True))
        view = await world.pipeline.buffer.read(a_session(user))
        assert view.summary is not None
        assert (view.summary.version, view.summary.model) == (cached.version + 1, "loud/1")
        assert view.summary == await world.pipeline.summaries.latest(a_session(user), None, None)
        assert [turn.turn_id for turn in view.turns] == ["t3", "t4"], "what is not covered stays"
        keys = [key for name in ("s1", "s2") for key in session_keys(a_session(user, name))]
        await client.delete(*keys)
        await world.rebuild(user, "summaries", Model("louder/1", loud=True))
        assert await client.exists(*keys) == 0
        assert await world.shadow(user) == 0
    finally:
        world.pipeline.buffer = memory_buffer
        await client.aclose()


async def test_a_cache_that_was_down_at_the_swap_follows_on_the_next_run(world: World) -> None:
    user = await world.a_user_with_memory()
    seen = 0

    def progress(done: int, total: int) -> None:
        nonlocal seen
        seen += 1
        world.pipeline.buffer.down = done == total

    with pytest.raises(Exception, match="run the command again"):
        await world.rebuild(user, "summaries", Model("loud/1", loud=True), progress=progress)
    world.pipeline.buffer.down = False
    latest = await world.pipeline.summaries.latest(a_session(user), None, None)
    assert latest.model == "loud/1"
    assert await world.shadow(user) > 0
    again = Model("loud/1", loud=True)
    await world.rebuild(user, "summaries", again)
    assert (await world.pipeline.buffer.read(a_session(user))).summary == latest
    assert await world.shadow(user) == 0


async def test_a_swap_of_summaries_that_are_not_done_yet_is_refused(world: World) -> None:
    """As after a command that lags behind another one has put its earlier step back."""
    ana = a_user()
    for turn in story(ana, 8):
        await world.remember([turn], Model("loud/1", loud=True))
    before = (await world.rows(ana))["summaries"]
    taken: list[Turn] = []

    def down(turn: Turn) -> None:
        taken.append(turn)
        if len(taken) > 2:
            raise ModelUnavailable("overloaded")

    with pytest.raises(Transient):
        await world.rebuild(ana, "summaries", Model("loud/2", loud=True, before=down))
    opened = await world.open_rebuild(ana, "summaries")
    assert opened
    parts = Wiring(world.pipeline.settings)
    parts.model, parts.embedder = Model("loud/2", loud=True), HashEmbedder()
    job = job_of(opened, world.operator, world.pipeline.buffer, parts, Patience([]))
    with pytest.raises(StaleVersion):
        await job.swap()
    assert (await world.rows(ana))["summaries"] == before


async def test_what_a_dry_run_was_refused_and_a_replay_has_brought_in_stays_in(world: World) -> None:
    ana = a_user()

    def refuse(turn: Turn) -> None:
        if turn.turn_id == "t1":
            raise ModelRefused("blocked")

    turns = story(ana, 5)
    for turn in turns:
        await world.pipeline.episodes.record(turn, [])
        await world.pipeline.buffer.append(turn)
        await world.summarise(turn, Model("loud/1", loud=True, before=refuse))
    dry = await world.rebuild(ana, "summaries", Model("loud/2", loud=True, before=refuse), swap=False)
    assert [each.turn_id for each in dry.difference.refused] == ["t1"]
    await world.summarise(turns[1], Model("loud/2", loud=True))
    assert (await world.rebuild(ana, "summaries", Model("loud/2", loud=True))).swapped
    latest = await world.pipeline.summaries.latest(a_session(ana), None, None)
    assert "t1" in {line.turn_id for line in latest.lines}
