"""Memory is a function of the log: made again it is the same, or what another model would have made."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lamina.errors import ConfigurationError, ModelRefused, ModelUnavailable, NotFound, Transient
from lamina.model import Turn
from lamina.postgres.rebuilds import PostgresRebuilds, RebuildStage
from lamina.testing.models import HashEmbedder
from tests.builders import a_turn, a_user
from tests.integration.rebuild_world import SAID, STAGES, Killed, Model, World, story, world

__all__ = ["world"]

PROPERTY = settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
every_stage = pytest.mark.parametrize("stage", STAGES)


@given(
    first=st.permutations(range(5)),
    second=st.permutations(range(5, len(SAID))),
    again=st.lists(st.integers(0, len(SAID) - 1), max_size=4),
)
@PROPERTY
async def test_made_again_by_the_same_model_memory_is_the_same_to_the_last_byte(
    world: World, first: list[int], second: list[int], again: list[int]
) -> None:
    user = a_user()
    turns = story(user)
    for numbers in (first, [*second, *again]):  # a session begins when the one before it has been summarised
        await world.remember([turns[number] for number in numbers])
    before = await world.rows(user)
    for stage in STAGES:
        outcome = await world.rebuild(user, stage)
        assert outcome.swapped
        assert outcome.difference.changes == ()
    assert await world.rows(user) == before


async def test_made_again_by_another_model_it_is_what_that_one_would_have_made_from_the_start(
    world: World,
) -> None:
    loud = Model("loud/1", loud=True)
    wanted = await world.what(await world.a_user_with_memory(loud))
    user = await world.a_user_with_memory()
    assert await world.what(user) != wanted
    for stage in STAGES:
        await world.rebuild(user, stage, loud)
    assert await world.what(user) == wanted


@pytest.mark.parametrize("stage", ["entities", "episodes"])
async def test_another_embedder_makes_every_vector_again_and_changes_nothing_else(
    world: World, stage: RebuildStage
) -> None:
    user = await world.a_user_with_memory()
    before = (await world.rows(user))[stage]
    embedder = HashEmbedder("hash/2")
    outcome = await world.rebuild(user, stage, embedder=embedder)
    after = (await world.rows(user))[stage]
    assert {row["embedding_model"] for row in after} == {"hash/2"}
    assert embedder.asked == outcome.difference.counts["vectors_made"] <= len(after)

    def bare(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(row["text"], row["search"]) for row in rows]

    assert sorted(bare(after)) == sorted(bare(before))


async def test_another_embedder_alone_costs_no_call_of_the_language_model(world: World) -> None:
    user = await world.a_user_with_memory()
    before = (await world.rows(user))["entities"]
    model = Model("loud/1", loud=True)
    await world.rebuild(user, "entities", model, embedder=HashEmbedder("hash/2"), only_vectors=True)
    after = (await world.rows(user))["entities"]
    assert model.asked == []
    vectors = {"embedding": None, "embedding_model": None}
    assert [{**row, **vectors} for row in after] == [{**row, **vectors} for row in before]
    assert {row["embedding_model"] for row in after} == {"hash/2"}


@every_stage
async def test_nothing_is_changed_before_the_swap_and_a_discarded_rebuild_leaves_nothing(
    world: World, stage: RebuildStage
) -> None:
    user = await world.a_user_with_memory()
    before = await world.rows(user)
    outcome = await world.rebuild(
        user, stage, Model("loud/1", loud=True), swap=False, embedder=HashEmbedder("hash/2")
    )
    assert not outcome.swapped
    assert outcome.difference.changes
    assert await world.rows(user) == before
    assert await world.shadow(user) > 0
    rebuild = await world.open_rebuild(user, stage)
    assert rebuild is not None
    assert rebuild.state == "ready"
    await PostgresRebuilds(world.operator).discard(rebuild)
    assert await world.open_rebuild(user, stage) is None
    assert await world.shadow(user) == 0
    assert await world.rows(user) == before


@every_stage
async def test_killed_between_units_it_goes_on_where_it_was_and_does_no_unit_twice(
    world: World, stage: RebuildStage
) -> None:
    user, calm = await world.a_user_with_memory(), await world.a_user_with_memory()
    embedder = HashEmbedder("hash/2")
    await world.rebuild(calm, stage, Model("loud/1", loud=True), embedder=embedder)
    needed = embedder.asked

    class Dying(HashEmbedder):
        async def documents(self, texts: Any) -> Any:
            if stage == "episodes" and self.asked >= needed // 2:
                raise Killed
            return await super().documents(texts)

    def die(turn: Turn) -> None:
        if turn.turn_id == "t5":
            raise Killed

    first, dying = Model("loud/1", loud=True, before=die), Dying("hash/2")
    with pytest.raises(Killed):
        await world.rebuild(user, stage, first, embedder=dying)
    then, calmly = Model("loud/1", loud=True), HashEmbedder("hash/2")
    await world.rebuild(user, stage, then, embedder=calmly)
    asked = [*first.asked, *then.asked]
    if stage == "entities":
        assert sorted(asked) == sorted(turn.turn_id for turn in story(user))
    else:
        assert len(asked) == len(set(asked))
    assert dying.asked + calmly.asked == needed
    assert await world.what(user) == await world.what(calm)


@pytest.mark.parametrize("stage", ["entities", "episodes"])
async def test_turns_that_come_meanwhile_are_neither_lost_nor_doubled(
    world: World, stage: RebuildStage
) -> None:
    user, calm = a_user(), a_user()
    turns, extra = story(user), a_turn(user, 50, session="s2", user="I prefer the compact layout.")
    older = a_turn(user, 0, session="s3", turn_id="t-old", user="We use npm for packages.")
    newest = a_turn(user, 60, session="s2", user="My favourite colour is blue.")
    await world.remember(turns)
    loud = Model("loud/1", loud=True)

    async def deliver(turn: Turn) -> None:
        if turn.turn_id == "t3" and loud.asked == ["t0", "t1", "t2"]:
            await world.remember([extra, older])

    loud.before = deliver
    arrived = False

    def progress(done: int, total: int) -> None:
        nonlocal arrived
        arrived = arrived or done == total

    if stage == "episodes":
        await world.rebuild(user, stage, loud, embedder=HashEmbedder("hash/2"), swap=False)
        await world.remember([extra, older])
    await world.rebuild(user, stage, loud, embedder=HashEmbedder("hash/2"), swap=False, progress=progress)
    assert arrived
    await world.remember([newest])
    await world.rebuild(user, stage, loud, embedder=HashEmbedder("hash/2"))

    def of(turn: Turn) -> Turn:
        return Turn.model_validate({**turn.to_json(), "user_id": calm})

    await world.remember([of(turn) for turn in (*turns, extra, older, newest)])
    await world.rebuild(calm, stage, Model("loud/1", loud=True), embedder=HashEmbedder("hash/2"))
    assert (await world.what(user))[stage] == (await world.what(calm))[stage]
    if stage == "entities":
        assert sorted(loud.asked) == sorted(turn.turn_id for turn in (*turns, extra, older, newest))


async def test_a_session_that_moves_on_meanwhile_is_folded_on_and_keeps_what_it_covers(world: World) -> None:
    user = await world.a_user_with_memory()
    loud = Model("loud/1", loud=True)
    await world.rebuild(user, "summaries", loud, swap=False)
    more = [a_turn(user, number, session="s2", user=f"Remark number {number}.") for number in range(20, 24)]
    await world.remember(more)
    before = (await world.rows(user))["summary_turns"]
    await world.rebuild(user, "summaries", loud)
    rows = await world.rows(user)
    assert rows["summary_turns"] == before
    covered = [row["turn_id"] for row in before if row["session_id"] == "s2"]
    [*_, latest] = [row for row in rows["summaries"] if row["session_id"] == "s2"]
    assert "t20" in covered
    assert all(latest["lines"].count(f'"{turn_id}!"') == 1 for turn_id in covered)
    assert len(loud.asked) == len(set(loud.asked)), "nothing was folded twice"


async def test_readers_see_the_old_memory_or_the_new_one_and_never_a_mixture(world: World) -> None:
    user = await world.a_user_with_memory()
    seen: set[tuple[str, ...]] = set()

    async def look() -> None:
        async with world.operator.as_user("shop", user) as conn:
            found = await conn.execute(
                """
                SELECT text FROM lamina.entities
                WHERE app = 'shop' AND user_id = %(user)s AND valid_to IS NULL ORDER BY subject, text
                """,
                {"user": user},
            )
            seen.add(tuple(row["text"] for row in await found.fetchall()))

    async def keep_looking(done: asyncio.Event) -> None:
        while not done.is_set():
            await look()

    await look()
    [old] = seen
    done = asyncio.Event()
    watching = asyncio.create_task(keep_looking(done))
    await world.rebuild(user, "entities", Model("loud/1", loud=True, before=lambda _: look()))
    done.set()
    await watching
    await look()
    new = tuple(text.upper() for text in old)
    assert {tuple(sorted(each)) for each in seen} == {tuple(sorted(old)), tuple(sorted(new))}


@every_stage
async def test_other_users_are_untouched(world: World, stage: RebuildStage) -> None:
    user, other = await world.a_user_with_memory(), await world.a_user_with_memory()
    before = await world.rows(other)
    await world.rebuild(user, stage, Model("loud/1", loud=True), embedder=HashEmbedder("hash/2"))
    assert await world.rows(other) == before


@every_stage
async def test_one_session_can_be_made_again_alone(world: World, stage: RebuildStage) -> None:
    user = await world.a_user_with_memory()
    before = await world.rows(user)
    await world.rebuild(
        user, stage, Model("loud/1", loud=True), session="s2", embedder=HashEmbedder("hash/2")
    )
    after = await world.rows(user)
    for table in ("statements", "episodes", "summaries"):
        assert [row for row in after[table] if row["session_id"] == "s1"] == [
            row for row in before[table] if row["session_id"] == "s1"
        ]
    assert after != before


async def test_a_refused_turn_keeps_what_is_in_memory_and_is_named(world: World) -> None:
    user = await world.a_user_with_memory()
    before = await world.rows(user)

    def refuse(turn: Turn) -> None:
        if turn.turn_id == "t1":
            raise ModelRefused("blocked")

    outcome = await world.rebuild(user, "entities", Model("loud/1", loud=True, before=refuse))
    assert [(each.turn_id, each.reason) for each in outcome.difference.refused] == [
        ("t1", "ModelRefused: blocked")
    ]
    after = await world.rows(user)
    assert [row for row in after["statements"] if row["turn_id"] == "t1"] == [
        row for row in before["statements"] if row["turn_id"] == "t1"
    ]
    assert {row["extractor"] for row in after["statements"]} == {"offline/1", "loud/1"}
    assert {row["extractor"] for row in after["entities"]} == {"offline/1", "loud/1"}

    outcome = await world.rebuild(user, "summaries", Model("loud/1", loud=True, before=refuse))
    assert [each.turn_id for each in outcome.difference.refused] == ["t1"]
    latest = next(row for row in reversed((await world.rows(user))["summaries"]) if row["session_id"] == "s1")
    assert "Never deploy on Fridays" in latest["lines"]
    assert '"t0!"' in latest["lines"]


async def test_a_deployment_that_refuses_everything_is_not_taken_for_bad_turns(world: World) -> None:
    user = a_user()
    await world.remember([a_turn(user, number, user=f"I prefer layout {number}.") for number in range(12)])

    def refuse(_: Turn) -> None:
        raise ModelRefused("there is no such model")

    with pytest.raises(ModelRefused):
        await world.rebuild(user, "entities", Model("loud/1", before=refuse))


async def test_an_overloaded_model_is_asked_again_and_then_the_command_can_be_run_again(world: World) -> None:
    user = await world.a_user_with_memory()
    failures = [ModelUnavailable("429") for _ in range(2)]

    def fail(_: Turn) -> None:
        if failures:
            raise failures.pop()

    await world.rebuild(user, "entities", Model("loud/1", loud=True, before=fail), swap=False)
    assert failures == []
    failures += [ModelUnavailable("429") for _ in range(3)]
    with pytest.raises(Transient, match="429; what was made is kept: run the command again"):
        await world.rebuild(user, "summaries", Model("loud/1", loud=True, before=fail))
    assert (await world.rebuild(user, "summaries", Model("loud/1", loud=True))).swapped


async def test_what_is_open_is_finished_by_the_same_model_or_discarded(world: World) -> None:
    user = await world.a_user_with_memory()
    await world.rebuild(user, "entities", Model("loud/1", loud=True), swap=False)
    with pytest.raises(ConfigurationError, match=r"of all sessions with loud/1 and hash/1 is open"):
        await world.rebuild(user, "entities", Model("louder/1", loud=True))
    with pytest.raises(ConfigurationError, match="--discard"):
        await world.rebuild(user, "entities", Model("loud/1", loud=True), session="s1")


async def test_a_unit_that_is_in_hand_while_its_rebuild_is_discarded_is_refused(world: World) -> None:
    user = await world.a_user_with_memory()

    async def discard(turn: Turn) -> None:
        if turn.turn_id == "t3" and (opened := await world.open_rebuild(user, "entities")):
            await PostgresRebuilds(world.operator).discard(opened)

    with pytest.raises(NotFound, match="ended meanwhile"):
        await world.rebuild(user, "entities", Model("loud/1", before=discard))
    assert await world.shadow(user) == 0
