"""What is forgotten is nowhere, stays away whatever comes late, and takes nothing of anybody else along."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamina.api import ContextRequest
from lamina.errors import Forgotten
from lamina.forgetting import Selection
from lamina.model import SessionKey, Turn
from lamina.valkey.buffer import KINDS, session_keys
from lamina_services.context.handler import build_context
from tests.builders import APP, BEGAN, a_turn
from tests.fixtures_valkey import valkey_url
from tests.integration.forgetting_world import (
    SETTINGS,
    MemoryWorld,
    Row,
    a_name,
    pubsub,
    words_of,
    world,
)

__all__ = ["pubsub", "valkey_url", "world"]

SCOPES = {
    "the user": {},
    "a session that another one inherits from": {"session_id": "s1"},
    "a session that inherits": {"session_id": "s2"},
    "a session of mixed projects": {"session_id": "s3"},
    "a project": {"project_id": "shop"},
    "what is older than a moment": {"before": BEGAN + timedelta(minutes=2)},
}


def selected(turn: Turn, chosen: dict[str, Any]) -> bool:
    return (
        chosen.get("session_id") in (None, turn.session_id)
        and chosen.get("project_id") in (None, turn.project_id)
        and ("before" not in chosen or turn.occurred_at <= chosen["before"])
    )


def published_anew(turn: Turn) -> Turn:
    """The turn of a publisher that dates it when it publishes."""
    return Turn.model_validate({**turn.to_json(), "occurred_at": datetime.now(UTC) + timedelta(seconds=1)})


def of_sessions(rows: dict[str, list[Row]], sessions: set[str]) -> dict[str, list[Row]]:
    """The rows that are these sessions' own, by table."""
    own = {
        table: [row for row in found if row.get("session_id") in sessions]
        for table, found in rows.items()
        if table not in ("rebuilds", "rebuild_items")
    }
    return {table: found for table, found in own.items() if found}


@pytest.mark.parametrize("chosen", list(SCOPES.values()), ids=list(SCOPES))
async def test_not_a_word_is_left_and_nothing_comes_back(world: MemoryWorld, chosen: dict[str, Any]) -> None:
    ana, bo = a_name(), a_name()
    turns, others = await world.fill(ana), await world.fill(bo)
    gone = [turn for turn in turns if selected(turn, chosen)]
    kept = [turn for turn in turns if not selected(turn, chosen)]
    assert len(await world.words(words_of(gone))) >= 10, "there is nothing to find"
    neighbour = (await world.rows(bo), await world.words(words_of(others)))
    before = await world.rows(ana)

    dry = await world.everywhere.forget(Selection(APP, ana, **chosen), act=False)
    assert await world.rows(ana) == before
    receipt = await world.forget(Selection(APP, ana, **chosen))
    assert (receipt.database, receipt.queues) == (dry.database, dry.queues)
    assert receipt.database["turns"] == len(gone)
    assert receipt.valkey["turns"] == dry.valkey["turns"]

    assert await world.words(words_of(gone)) == set()
    assert (await world.rows(bo), await world.words(words_of(others))) == neighbour
    own = {turn.session_id for turn in kept} - {turn.session_id for turn in gone}
    heirs = {"s2"} if any(turn.session_id == "s1" for turn in gone) else set[str]()
    after = of_sessions(await world.rows(ana), own - heirs)
    assert _without_revived(after) == _without_revived(of_sessions(before, own - heirs))

    for turn in (*gone, *(published_anew(turn) for turn in gone)):
        for stage in world.stages:
            with pytest.raises(Forgotten):
                await stage(turn)
        with pytest.raises(Forgotten):
            await world.bury_index(turn)
    await world.live(kept)
    for project in ("shop", "blog", None):
        await world.compact(ana, project, BEGAN + timedelta(hours=9))
    assert await world.words(words_of(gone)) == set()
    for turn in kept:
        assert await world.episodes.turn(turn.session, turn.turn_id) == turn
        found = await world.words(words_of([turn]))
        assert {"turns", "episodes", "statements"} <= found


def _without_revived(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """An episode that a deleted compaction had archived is back, an entity may hold again; no more."""
    for row in rows.get("episodes", []):
        row.update(archived_by=None, whole="")
    return {table: found for table, found in rows.items() if table not in ("entities", "compaction_lines")}


async def test_what_is_said_after_it_is_remembered(world: MemoryWorld) -> None:
    ana = a_name()
    await world.fill(ana)
    await world.forget(Selection(APP, ana, session_id="s1"))
    new = a_turn(
        ana,
        1,
        session="s1",
        occurred_at=datetime.now(UTC) + timedelta(seconds=1),
        user="I prefer green tea.",
        turn_id="new",
    )
    await world.live([new])
    assert await world.episodes.turn(new.session, "new") == new
    assert await world.buffered(new.session) == ["new"]
    assert any("green tea" in view.text for view in await world.entities.known(new))


async def test_kept_turns_are_summarised_again_by_the_summarizer_alone(world: MemoryWorld) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    receipt = await world.forget(Selection(APP, ana, session_id="s1"))
    heir = SessionKey(app=APP, user_id=ana, session_id="s2")
    assert (await world.summaries.latest(heir, None, None)).version == 0
    assert receipt.summarised_again >= 1
    told = world.yard.received("summarizer", receipt.summarised_again)
    assert all(each.attributes["replay_to"] == "summarizer" for each in told)
    assert world.yard.received_now("entity-extractor") == 0
    for turn in turns:
        if turn.session_id == "s2" and turn.turn_id == "t4":
            await world.summarise(turn)
    summary = await world.summaries.latest(heir, None, None)
    assert summary.version == 1
    assert words_of([t for t in turns if t.session_id == "s2" and t.turn_id != "t4"]) <= set(
        " ".join(line.text for line in summary.lines).replace(".", " ").split()
    )


async def test_a_turn_that_was_dated_ahead_goes_and_stays_away_as_well(world: MemoryWorld) -> None:
    ana = a_name()
    ahead = a_turn(ana, 1, occurred_at=datetime.now(UTC) + timedelta(days=400), user=f"zq{ana}ahead")
    await world.live([ahead])
    await world.forget(Selection(APP, ana))
    with pytest.raises(Forgotten):
        await world.publish(ahead)
    assert await world.words({f"zq{ana}ahead"}) == set()
    await world.publish(a_turn(ana, 2, occurred_at=datetime.now(UTC) + timedelta(seconds=1)))


async def test_killed_half_way_the_same_command_finishes(world: MemoryWorld) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    chosen = Selection(APP, ana, project_id="shop")
    gone = [turn for turn in turns if turn.project_id == "shop"]
    await world.everywhere.database.forget(chosen)  # and then the process is gone
    assert any(place.startswith("lamina:") for place in await world.words(words_of(gone)))
    assert "dead letter of entity-extractor" in await world.words(words_of(gone))
    await world.forget(chosen)
    assert await world.words(words_of(gone)) == set()
    assert (await world.forget(chosen)).total == 0


async def test_a_session_that_only_the_buffer_knows_is_forgotten(world: MemoryWorld) -> None:
    ana = a_name()
    turn = a_turn(ana, 1, user=f"zq{ana}buffered")
    growing = a_turn(ana, 2, user=f"zq{ana}growing")
    await world.buffer.append(turn)
    await world.buffer.append(growing, close=False)
    receipt = await world.forget(Selection(APP, ana))
    assert receipt.valkey["turns"] == 2
    assert await world.words({f"zq{ana}buffered", f"zq{ana}growing"}) == set()


@pytest.mark.parametrize("evicted", ["order", "meta", "events", "summary"])
async def test_a_session_that_lost_a_key_is_forgotten_too(world: MemoryWorld, evicted: str) -> None:
    ana = a_name()
    turns = [turn for turn in await world.fill(ana) if turn.session_id == "s3"]
    client: Any = world.client
    keys: dict[str, str] = dict(zip(KINDS, session_keys(turns[0].session), strict=True))
    await client.unlink(keys[evicted])
    await world.forget(Selection(APP, ana, session_id="s3"))
    assert await world.words(words_of(turns)) == set()


async def test_what_is_left_of_a_session_without_a_name_goes(world: MemoryWorld) -> None:
    ana, bo = a_name(), a_name()
    lost, kept = a_turn(ana, 1, user=f"zq{ana}lost"), a_turn(bo, 1, user=f"zq{bo}kept")
    client: Any = world.client
    for turn in (lost, kept):
        await world.buffer.append(turn)
    await client.unlink(session_keys(lost.session)[KINDS.index("meta")])
    receipt = await world.forget(Selection(APP, ana))
    assert receipt.valkey["keys of lost sessions"] >= 2
    assert await world.words({f"zq{ana}lost"}) == set()
    assert await world.buffered(kept.session) == ["t1"]


async def test_a_flushed_buffer_lets_a_late_turn_in_and_the_context_still_leaves_it_out(
    world: MemoryWorld,
) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    await world.forget(Selection(APP, ana, session_id="s1"))
    await world.buffer.drop(turns[0].session, [], summary=True)
    await world.forget_buffers_tombstones(ana)
    late = turns[0]
    await world.publish(late)
    answer = await build_context(
        ContextRequest(app=APP, user_id=ana, session_id="s1", query="theme"),
        buffer=world.buffer,
        reader=world.reader,
        embedder=world.embedder,
        tokens=world.tokens,
        settings=SETTINGS,
    )
    assert words_of([late]).pop() not in answer.model_dump_json()
    with pytest.raises(Forgotten):
        await world.summarise(late)
    assert await world.words(words_of([late])) == set()
