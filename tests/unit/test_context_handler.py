"""The context answers with what it has, within its deadline, and says what is missing."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from lamina.api import ContextRequest, ContextResponse, EntityView, EpisodeView, FetchRequest, SearchRequest
from lamina.errors import DependencyUnavailable, InvalidEvent, ModelUnavailable, NotFound
from lamina.event import Speaker
from lamina.model import Kind, Scope, SessionKey, Summary, SummaryLine, Turn
from lamina.models.tokens import EstimatedTokens
from lamina.ports import Vector
from lamina.settings import Settings
from lamina.testing.buffer import InMemoryBuffer
from lamina.testing.reader import InMemoryReader
from lamina_services.context.fetch import fetch_part
from lamina_services.context.handler import build_context
from lamina_services.context.search import search_memory

AT = datetime(2026, 1, 5, 10, tzinfo=UTC)
SESSION = SessionKey(app="shop", user_id="ana", session_id="s2")
BEFORE = SESSION.model_copy(update={"session_id": "s1"})

Hold = Callable[[], Awaitable[None]]


async def at_once() -> None:
    return None


async def for_ever() -> None:
    await asyncio.Event().wait()


class StubbornBuffer(InMemoryBuffer):
    """A buffer that takes its time."""

    hold: Hold = staticmethod(at_once)

    async def read(self, session: SessionKey, *, last: int | None = None) -> Any:
        await self.hold()
        return await super().read(session, last=last)


class StubbornReader(InMemoryReader):
    """A database that takes its time, and notes what it was asked."""

    hold: Hold = staticmethod(at_once)
    asked: Any = None

    async def recall(
        self,
        request: ContextRequest,
        vector: Vector | None,
        model: str,
        *,
        tail: int,
        seen: Sequence[str] = (),
    ) -> Any:
        self.asked = {"tail": tail, "seen": list(seen), "deadline_ms": request.deadline_ms, "model": model}
        await self.hold()
        return await super().recall(request, vector, model, tail=tail, seen=seen)


class StubEmbedder:
    """Gives the same vector for every question, when it is told to."""

    name = "stub"

    def __init__(self) -> None:
        self.hold: Hold = at_once
        self.failure: Exception | None = None
        self.asked: list[str] = []

    async def warm(self) -> None: ...

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        return [[1.0] for _ in texts]

    async def query(self, text: str) -> Vector:
        self.asked.append(text)
        await self.hold()
        if self.failure:
            raise self.failure
        return [1.0]


def a_turn(turn_id: str, text: str = "hello", session: SessionKey = SESSION) -> Turn:
    return Turn.model_validate(
        {**session.model_dump(), "turn_id": turn_id, "occurred_at": AT, "user": text, "assistant": "noted"}
    )


def a_summary(text: str, session: SessionKey = SESSION, *, version: int = 1, kind: str = "digest") -> Summary:
    line = SummaryLine(kind=kind, text=text, turn_id="t0", at=AT)
    return Summary(session=session, version=version, lines=(line,))


VETO = EntityView(
    entity_id=uuid.UUID(int=1),
    scope=Scope.GLOBAL,
    kind=Kind.VETO,
    subject="migrations",
    text="Never run migrations against production",
    said_by=Speaker.USER,
    turn_id="t0",
    said_at=AT,
)
MOMENT = EpisodeView(
    session_id="s0",
    turn_id="old",
    ordinal=0,
    speaker=Speaker.USER,
    text="the cache is Valkey",
    occurred_at=AT,
)


class World:
    """The service with its dependencies."""

    def __init__(self) -> None:
        self.buffer = StubbornBuffer()
        self.reader = StubbornReader(entities=[VETO], episodes=[MOMENT])
        self.embedder = StubEmbedder()

    async def context(self, **fields: Any) -> ContextResponse:
        request = {**SESSION.model_dump(), "query": "which cache?", "deadline_ms": 400, **fields}
        return await build_context(
            ContextRequest.model_validate(request),
            buffer=self.buffer,
            reader=self.reader,
            embedder=self.embedder,
            tokens=EstimatedTokens(),
            settings=Settings.model_construct(),
        )


@pytest.fixture
async def world() -> World:
    made = World()
    await made.buffer.append(a_turn("t1", "we need a cache"))
    return made


async def test_all_is_well_and_nothing_is_degraded(world: World) -> None:
    answer = await world.context()
    assert answer.degraded == ()
    assert [view.turn_id for view in answer.recent] == ["t1"]
    assert VETO.text in answer.prompt
    assert MOMENT.text in answer.prompt
    assert world.reader.vectors == [[1.0]]
    assert set(answer.timings_ms) == {"buffer", "embed", "memory", "assemble", "total"}
    assert world.reader.asked["model"] == "stub"


async def test_the_database_is_told_what_is_left_of_the_deadline_and_what_is_at_hand(world: World) -> None:
    await world.context()
    assert world.reader.asked["seen"] == ["t1"]
    assert world.reader.asked["tail"] > 0
    assert 0 < world.reader.asked["deadline_ms"] <= 400


async def test_a_down_buffer_is_rebuilt_from_the_log(world: World) -> None:
    world.buffer.down = True
    world.reader.turns = [a_turn("t1", "from the log")]
    answer = await world.context()
    assert answer.degraded == ("buffer",)
    assert "from the log" in answer.prompt


async def test_a_buffer_that_lost_everything_is_rebuilt_without_a_complaint(world: World) -> None:
    world.buffer.lose()
    world.reader.turns = [a_turn("t1", "from the log")]
    answer = await world.context()
    assert answer.degraded == ()
    assert [view.turn_id for view in answer.recent] == ["t1"]


async def test_what_the_buffer_lost_stands_before_what_it_got_since(world: World) -> None:
    world.buffer.lose()
    world.reader.turns = [a_turn("t0", "lost long ago"), a_turn("t1", "lost"), a_turn("t2", "since then")]
    await world.buffer.append(a_turn("t2", "since then"))
    answer = await world.context()
    assert [view.turn_id for view in answer.recent] == ["t0", "t1", "t2"]
    assert answer.degraded == ()


async def test_a_down_database_leaves_the_buffer_and_its_summary(world: World) -> None:
    world.reader.down = True
    await world.buffer.trim(SESSION, [], a_summary("Never deploy on Fridays", kind="veto"))
    answer = await world.context()
    assert answer.degraded == ("memory",)
    assert [view.turn_id for view in answer.recent] == ["t1"]
    assert "Never deploy on Fridays" in answer.prompt
    assert answer.summary is not None


@pytest.mark.parametrize("failure", [ModelUnavailable("429"), None])
async def test_without_a_vector_the_words_are_searched(world: World, failure: Exception | None) -> None:
    world.embedder.failure = failure
    world.embedder.hold = at_once if failure else for_ever
    answer = await world.context()
    assert answer.degraded == ("vectors",)
    assert world.reader.vectors == [None]
    assert MOMENT.text in answer.prompt


async def test_a_silent_dependency_does_not_hold_up_the_answer(world: World) -> None:
    world.buffer.hold = world.embedder.hold = for_ever
    world.reader.turns = [a_turn("t1", "from the log")]
    async with asyncio.timeout(30):  # for_ever is for ever: a service that waited would never come back
        answer = await world.context(deadline_ms=200)
    assert answer.degraded == ("buffer", "vectors")
    assert "from the log" in answer.prompt


async def test_a_silent_database_leaves_what_the_buffer_holds(world: World) -> None:
    world.reader.hold = for_ever
    answer = await world.context(deadline_ms=200)
    assert answer.degraded == ("memory",)
    assert [view.turn_id for view in answer.recent] == ["t1"]


async def test_with_neither_buffer_nor_database_there_is_no_answer(world: World) -> None:
    world.buffer.down = world.reader.down = True
    with pytest.raises(DependencyUnavailable):
        await world.context()


async def test_without_a_question_nothing_is_embedded_and_no_episode_comes(world: World) -> None:
    answer = await world.context(query=" \n")
    assert (world.embedder.asked, answer.episodes, answer.degraded) == ([], (), ())
    assert VETO.text in answer.prompt


async def test_a_brand_new_session_inherits_the_previous_ones_summary() -> None:
    world = World()
    world.reader.summaries["s1"] = a_summary("They chose FastAPI", BEFORE, version=3)
    answer = await world.context(previous_session_id="s1")
    assert answer.summary is not None
    assert (answer.summary.session_id, answer.summary.version) == ("s1", 3)
    assert "They chose FastAPI" in answer.prompt
    assert answer.recent == ()


async def test_the_newer_of_the_cached_and_the_stored_summary_is_used(world: World) -> None:
    await world.buffer.trim(SESSION, [], a_summary("cached", version=2))
    world.reader.summaries["s2"] = a_summary("stored", version=1)
    assert "cached" in (await world.context()).prompt
    world.reader.summaries["s2"] = a_summary("stored", version=3)
    assert "stored" in (await world.context()).prompt


async def test_a_search_without_a_vector_says_so(world: World) -> None:
    world.embedder.failure = ModelUnavailable("429")
    request = SearchRequest(app="shop", user_id="ana", query="cache")
    answer = await search_memory(request, reader=world.reader, embedder=world.embedder)
    assert answer.degraded == ("vectors",)
    assert answer.episodes[0].text == MOMENT.text


async def fetch(world: World, handle: str) -> dict[str, Any]:
    request = FetchRequest(app="shop", user_id="ana", handle=handle)
    return (await fetch_part(request, buffer=world.buffer, reader=world.reader)).part


async def test_a_handle_fetches_the_part_from_the_buffer_else_from_the_log(world: World) -> None:
    assert await fetch(world, "lamina:s2/t1/0/0") == {"text": "we need a cache"}
    world.reader.turns = [a_turn("t9", "long ago")]
    assert await fetch(world, "lamina:s2/t9/0/0") == {"text": "long ago"}
    world.buffer.down = True
    assert await fetch(world, "lamina:s2/t9/0/0") == {"text": "long ago"}


@pytest.mark.parametrize(
    "handle",
    ["lamina:s2/t1/9/0", "lamina:s2/t1/0/9", "lamina:s2/no/0/0", "lamina:%00/t/0/0", "lamina:s/%00/0/0"],
)
async def test_a_handle_to_nothing_is_not_found(world: World, handle: str) -> None:
    with pytest.raises(NotFound):
        await fetch(world, handle)


async def test_what_is_no_handle_is_refused(world: World) -> None:
    with pytest.raises(InvalidEvent):
        await fetch(world, "file:///etc/passwd")


async def test_while_the_buffer_is_down_a_missing_part_may_only_be_out_of_reach(world: World) -> None:
    world.buffer.down = True
    with pytest.raises(DependencyUnavailable):
        await fetch(world, "lamina:s2/t1/0/0")
