"""Recall on a real PostgreSQL: what is found, in which order, and what must never be."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.api import ContextRequest, SearchRequest
from lamina.errors import DependencyUnavailable
from lamina.event import Speaker
from lamina.events import CompactionRequested
from lamina.model import EpisodeChunk, Kind, Scope, Summary, SummaryLine, Turn
from lamina.ports import Consolidation, Recalled, Vector
from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.database import Database
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.reader import PostgresReader
from lamina.postgres.summaries import PostgresSummaries
from lamina.settings import Settings
from tests.builders import APP, BEGAN, a_chunk, a_session, a_statement, a_turn, a_user, a_vector
from tests.fixtures_postgres import TestDatabase

MODEL = "test-model"


@dataclass
class Memory:
    """One user's memory, written by the services' roles and read by the context's."""

    user: str
    reader: PostgresReader
    entities: PostgresEntities
    episodes: PostgresEpisodes
    summaries: PostgresSummaries
    compactions: PostgresCompactions

    async def say(self, turn: Turn, text: str, **fields: Any) -> uuid.UUID:
        """Absorb one statement; gives its entity's id."""
        done = await self.entities.absorb(turn, [a_statement(turn, text, **fields)], "test", uuid.uuid4())
        return done.changed[-1]

    async def tell(self, turn: Turn, *texts: str, language: str = "en", vector: Vector | None = None) -> None:
        """Record a turn's chunks, with a vector for each where one is given."""
        chunks = [a_chunk(n, text, language=language) for n, text in enumerate(texts)]
        await self.keep(turn, chunks, dict.fromkeys(range(len(texts)), vector) if vector else {})

    async def keep(self, turn: Turn, chunks: list[EpisodeChunk], vectors: dict[int, Vector]) -> None:
        await self.episodes.record(turn, chunks)
        await self.episodes.embed(turn, vectors, MODEL, uuid.uuid4())

    async def summarise(self, version: int, text: str, *turns: Turn) -> None:
        line = SummaryLine(kind="digest", text=text, turn_id=turns[0].turn_id, at=BEGAN)
        summary = Summary(session=turns[0].session, version=version, lines=(line,), model="test")
        await self.summaries.commit(summary, turns, uuid.uuid4())

    async def recall(
        self,
        query: str = "",
        vector: Vector | None = None,
        *,
        tail: int = 0,
        seen: tuple[str, ...] = (),
        **fields: Any,
    ) -> Recalled:
        request = {"app": APP, "user_id": self.user, "session_id": "now", "query": query, **fields}
        asked = ContextRequest.model_validate(request)
        return await self.reader.recall(asked, vector, MODEL, tail=tail, seen=seen)

    async def search(self, query: str, vector: Vector | None = None, **fields: Any) -> Recalled:
        asked = SearchRequest.model_validate({"app": APP, "user_id": self.user, "query": query, **fields})
        return await self.reader.search(asked, vector, MODEL)

    async def episodes_for(self, query: str, vector: Vector | None = None, **fields: Any) -> list[str]:
        return [episode.text for episode in (await self.search(query, vector, **fields)).episodes]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pools(memory_database: TestDatabase) -> AsyncIterator[dict[str, Database]]:
    roles = ("entity_extractor", "episodic_embedder", "summarizer", "compactor", "context")
    made = {role: Database(memory_database.service(f"lamina_{role}"), size=2) for role in roles}
    yield made
    await asyncio.gather(*(pool.close() for pool in made.values()))


def memory_of(user: str, pools: dict[str, Database]) -> Memory:
    return Memory(
        user=user,
        reader=PostgresReader(pools["context"]),
        entities=PostgresEntities(pools["entity_extractor"]),
        episodes=PostgresEpisodes(pools["episodic_embedder"]),
        summaries=PostgresSummaries(pools["summarizer"]),
        compactions=PostgresCompactions(pools["compactor"], Settings.model_construct()),
    )


@pytest.fixture
def memory(pools: dict[str, Database]) -> Memory:
    return memory_of(a_user(), pools)


def texts(views: Any) -> list[str]:
    return [view.text for view in views]


# --- what is in scope ------------------------------------------------------------------------------


async def test_a_read_sees_global_its_project_and_its_session_and_no_more(memory: Memory) -> None:
    retail = a_turn(memory.user, 1, session="now", project_id="CloudRetail")
    bank = a_turn(memory.user, 2, session="other", project_id="CloudBank")
    await memory.say(retail, "dark mode", scope=Scope.GLOBAL)
    await memory.say(
        a_turn(memory.user, 3, session="now", project_id="CloudRetail"), "FastAPI", scope=Scope.PROJECT
    )
    await memory.say(bank, "Spring", scope=Scope.PROJECT)
    await memory.say(a_turn(memory.user, 4, session="now"), "just for now", scope=Scope.SESSION)
    await memory.say(a_turn(memory.user, 5, session="other"), "elsewhere", scope=Scope.SESSION)
    found = await memory.recall("theme", project_id="CloudRetail")
    assert set(texts(found.entities)) == {"dark mode", "FastAPI", "just for now"}
    assert set(texts((await memory.recall("theme")).entities)) == {"dark mode", "just for now"}


async def test_two_projects_with_the_same_subjects_stay_apart(memory: Memory) -> None:
    for number, (project, timeout) in enumerate([("CloudRetail", "30 s"), ("CloudBank", "60 s")], start=1):
        turn = a_turn(memory.user, number, project_id=project)
        said = f"tool timeout is {timeout}"
        await memory.say(turn, said, scope=Scope.PROJECT, subject="tool timeout", kind=Kind.RULE)
        await memory.tell(turn, f"tool timeout of {project} is {timeout}")
    retail = await memory.recall("tool timeout", project_id="CloudRetail")
    assert texts(retail.rules) == ["tool timeout is 30 s"]
    assert texts(retail.episodes) == ["tool timeout of CloudRetail is 30 s"]
    neither = await memory.recall("tool timeout")
    assert (neither.rules, neither.entities, neither.episodes) == ((), (), ())


async def test_another_users_memory_is_never_found(memory: Memory, pools: dict[str, Database]) -> None:
    stranger = memory_of(a_user(), pools)
    turn = a_turn(stranger.user, 1, session="now", project_id="p")
    await stranger.say(turn, "never deploy on Fridays", kind=Kind.VETO)
    await stranger.tell(turn, "we deploy on Fridays", vector=a_vector())
    await stranger.summarise(1, "they deploy", turn)
    found = await memory.recall(
        "deploy Fridays", a_vector(), project_id="p", previous_session_id="now", tail=9
    )
    assert found == Recalled()
    assert await memory.search("deploy", a_vector(), project_id="p", session_id="now") == Recalled()
    assert await memory.reader.turn(a_session(memory.user, "now"), "t1") is None


async def test_every_rule_and_veto_in_scope_comes_whatever_the_question(memory: Memory) -> None:
    for number in range(30):
        kind = Kind.VETO if number % 2 else Kind.RULE
        await memory.say(a_turn(memory.user, number), f"rule {number}", subject=f"s{number}", kind=kind)
    found = await memory.recall("something else entirely", max_entities=0)
    assert len(found.rules) == 30
    assert found.entities == ()


# --- time ------------------------------------------------------------------------------------------


async def test_a_superseded_statement_returns_only_to_those_who_ask_for_its_time(memory: Memory) -> None:
    await memory.say(a_turn(memory.user, 10), "database is MySQL", subject="database")
    await memory.say(a_turn(memory.user, 20), "database is PostgreSQL", subject="database")
    assert texts((await memory.recall("database")).entities) == ["database is PostgreSQL"]

    async def at(minute: float) -> list[str]:
        moment = BEGAN + timedelta(minutes=minute)
        return texts((await memory.search("database", as_of=moment)).entities)

    assert await at(9) == []
    assert await at(10) == ["database is MySQL"]
    assert await at(19.99) == ["database is MySQL"]
    assert await at(20) == ["database is PostgreSQL"]


async def test_what_was_said_later_is_not_in_a_search_of_the_past(memory: Memory) -> None:
    await memory.tell(a_turn(memory.user, 10), "cache before")
    await memory.tell(a_turn(memory.user, 20), "cache after")
    assert await memory.episodes_for("cache", as_of=BEGAN + timedelta(minutes=15)) == ["cache before"]


async def test_a_named_date_raises_what_was_said_then(memory: Memory) -> None:
    for number, at in enumerate(["2025-05-07T10:00:00Z", "2025-09-01T10:00:00Z", "2026-01-01T10:00:00Z"]):
        turn = a_turn(memory.user, number, session=f"s{number}", occurred_at=at)
        await memory.tell(turn, f"[{at[:10]}] user: we moved the cache")
    found = await memory.episodes_for("what about the cache in May 2025?")
    assert found[0].startswith("[2025-05-07]")


# --- hybrid ranking --------------------------------------------------------------------------------


async def test_good_in_words_and_in_meaning_beats_best_in_one(memory: Memory) -> None:
    halfway = [0.8, 0.6, *[0.0] * 766]
    for session, text, vector in (
        ("a", "valkey valkey cache eviction", a_vector(1)),
        ("b", "something else", a_vector(0)),
        ("c", "valkey cache for sessions", halfway),
    ):
        await memory.tell(a_turn(memory.user, 1, session=session), text, vector=vector)
    assert (await memory.episodes_for("valkey cache", a_vector(0)))[0] == "valkey cache for sessions"


async def test_vectors_of_another_model_are_never_compared(memory: Memory) -> None:
    await memory.tell(a_turn(memory.user, 1), "completely unrelated words", vector=a_vector(0))
    request = SearchRequest(app=APP, user_id=memory.user, query="valkey")
    assert (await memory.reader.search(request, a_vector(0), "another-model")).episodes == ()
    assert len((await memory.reader.search(request, a_vector(0), MODEL)).episodes) == 1


async def test_rrf_is_there_by_name(memory: Memory, pools: dict[str, Database]) -> None:
    await memory.tell(a_turn(memory.user, 1), "valkey cache", vector=a_vector(0))
    reader = PostgresReader(pools["context"], fusion="rrf")
    request = SearchRequest(app=APP, user_id=memory.user, query="valkey")
    assert len((await reader.search(request, a_vector(0), MODEL)).episodes) == 1


async def test_no_question_finds_no_episodes_but_keeps_what_stands(memory: Memory) -> None:
    await memory.tell(a_turn(memory.user, 1), "valkey cache")
    await memory.say(a_turn(memory.user, 2), "dark mode")
    found = await memory.recall("")
    assert (texts(found.entities), found.episodes) == (["dark mode"], ())


async def test_no_more_than_asked_for(memory: Memory) -> None:
    for number in range(12):
        await memory.tell(a_turn(memory.user, number), f"cache note {number}", vector=a_vector(number))
        await memory.say(a_turn(memory.user, number), f"cache fact {number}", subject=f"s{number}")
    found = await memory.recall("cache", a_vector(), max_entities=3, max_episodes=2)
    assert (len(found.entities), len(found.episodes)) == (3, 2)
    only = await memory.search("cache", k=4, include=("episodes",))
    assert (len(only.entities), len(only.episodes)) == (0, 4)


async def test_a_scope_narrows_a_search(memory: Memory) -> None:
    turn = a_turn(memory.user, 1, session="now", project_id="p")
    await memory.say(turn, "cache anywhere", scope=Scope.GLOBAL)
    await memory.say(a_turn(memory.user, 2, session="now", project_id="p"), "cache of p", scope=Scope.PROJECT)
    await memory.tell(turn, "cache talk of p")
    await memory.tell(a_turn(memory.user, 3, session="old"), "cache talk of none")
    found = await memory.search("cache", scope="project", project_id="p")
    assert (texts(found.entities), texts(found.episodes)) == (["cache of p"], ["cache talk of p"])
    found = await memory.search("cache", scope="global", project_id="p")
    assert (texts(found.entities), texts(found.episodes)) == (["cache anywhere"], ["cache talk of none"])


# --- languages, and what users type ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "stored", "question"),
    [
        (
            "es",
            "Los tiempos de espera están limitados a 30 segundos",
            "¿qué límite tiene el TIEMPO de espera?",
        ),
        ("pt", "As migrações rodam na região us-east1", "em qual regiao roda a migração?"),
        ("en", "We are caching sessions in Valkey", "where do we cache a session?"),
        ("zh", "每个工具的超时时间是三十秒", "工具超时是多少？"),
        ("ja", "データベースはPostgreSQLを使います", "どのデータベース？"),
        ("ko", "데이터베이스는 알로이디비를 사용합니다", "데이터베이스가 뭐죠?"),
        ("und", "hyperloglog", "HyperLogLog"),
    ],
)
async def test_a_question_finds_its_answer_in_its_language(
    memory: Memory, language: str, stored: str, question: str
) -> None:
    await memory.tell(a_turn(memory.user, 1, session="a"), "the weather was fine", language="en")
    await memory.tell(a_turn(memory.user, 2, session="b"), stored, language=language)
    assert (await memory.episodes_for(question))[0] == stored


async def test_a_word_that_any_language_drops_finds_nothing_in_a_text_of_no_language(memory: Memory) -> None:
    await memory.tell(a_turn(memory.user, 1), "the and of with que para", language="und")
    assert await memory.episodes_for("the of que para") == []


@pytest.mark.parametrize(
    "question",
    [
        "'; DROP TABLE lamina.episodes; --",
        "cache' | 'x':* & !y <-> z",
        '"unbalanced OR (',
        "%s %(app)s {} $1 \\",
        "cache\x00cache",
        ":* & | ! ( ) <->",
        "cache " * 3_000,
        " ".join(f"w{n}" for n in range(3_000)) + " cache",
    ],
)
async def test_no_question_breaks_the_query(memory: Memory, question: str) -> None:
    await memory.tell(a_turn(memory.user, 1), "cache")
    found = await memory.recall(question, a_vector(), project_id="' OR true --", previous_session_id="%s")
    assert texts(found.episodes) == (["cache"] if "cache" in question else [])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=200))
async def test_any_question_is_answered(memory: Memory, question: str) -> None:
    await memory.recall(question)


# --- summaries and the tail ------------------------------------------------------------------------


async def test_a_new_session_inherits_the_nearest_summary_before_it(memory: Memory) -> None:
    first = a_turn(memory.user, 1, session="s1")
    second = a_turn(memory.user, 2, session="s2", previous_session_id="s1")
    await memory.summarise(1, "old", first)
    await memory.summarise(2, "they chose FastAPI", a_turn(memory.user, 3, session="s1"))
    await memory.tell(second, "hello")

    async def inherited(**fields: Any) -> tuple[str, int] | None:
        summary = (await memory.recall(**fields)).summary
        return (summary.session.session_id, summary.version) if summary else None

    assert await inherited(session_id="brand-new", previous_session_id="s1") == ("s1", 2)
    assert await inherited(session_id="brand-new", previous_session_id="s2") == ("s1", 2)
    assert await inherited(session_id="s2") == ("s1", 2)
    assert await inherited(session_id="brand-new") is None
    await memory.summarise(1, "its own", second)
    assert await inherited(session_id="s2", previous_session_id="s1") == ("s2", 1)


async def test_sessions_that_name_each_other_do_not_go_round_for_ever(memory: Memory) -> None:
    await memory.tell(a_turn(memory.user, 1, session="a", previous_session_id="b"), "x")
    await memory.tell(a_turn(memory.user, 2, session="b", previous_session_id="a"), "y")
    assert (await memory.recall(session_id="a")).summary is None


async def test_the_tail_is_the_latest_turns_that_no_summary_covers(memory: Memory) -> None:
    odd = {"author": "user", "content": {"role": "user", "parts": [{"text": "\x00 \ud800 é"}]}}
    turns = [a_turn(memory.user, n, session="now", events=[odd]) for n in range(6)]
    for turn in reversed(turns):
        await memory.tell(turn, f"chunk {turn.turn_id}")
    await memory.summarise(1, "covered", *turns[:2])
    assert (await memory.recall(tail=3)).tail == tuple(turns[3:])
    assert (await memory.recall(tail=99)).tail == tuple(turns[2:])
    assert (await memory.recall(tail=0)).tail == ()


async def test_the_tail_leaves_out_what_is_at_hand_and_finds_what_was_lost_between(memory: Memory) -> None:
    turns = [a_turn(memory.user, n, session="now") for n in range(8)]
    for turn in turns:
        await memory.tell(turn, f"chunk {turn.turn_id}")
    await memory.summarise(1, "covered", *turns[:2])
    assert (await memory.recall(tail=9, seen=("t7",))).tail == tuple(turns[2:7])
    assert (await memory.recall(tail=9, seen=("t0", "t2", "t4", "t7"))).tail == (turns[3], *turns[5:7])
    assert (await memory.recall(tail=2, seen=("t5", "t6", "t7"))).tail == tuple(turns[3:5])
    assert (await memory.recall(tail=9, seen=tuple(turn.turn_id for turn in turns))).tail == ()


async def test_turns_at_hand_give_no_episodes(memory: Memory) -> None:
    for number in (1, 2):
        await memory.tell(a_turn(memory.user, number, session="now"), f"cache {number}")
    await memory.tell(a_turn(memory.user, 1, session="old"), "cache of the past")
    found = await memory.recall("cache", seen=("t1",))
    assert set(texts(found.episodes)) == {"cache 2", "cache of the past"}


async def test_a_turn_comes_back_from_the_log_as_it_was(memory: Memory) -> None:
    turn = a_turn(memory.user, 1, extra={"kept": [1, None]})
    await memory.tell(turn, "x")
    assert await memory.reader.turn(turn.session, "t1") == turn


# --- compaction, and what the role may do ----------------------------------------------------------


async def test_a_consolidation_is_found_in_the_place_of_what_it_covers(memory: Memory) -> None:
    turn = a_turn(memory.user, 1, session="old")
    await memory.tell(turn, "the cache is Valkey and it evicts", "agreed, cache it")
    request = CompactionRequested(app=APP, user_id=memory.user, before=BEGAN + timedelta(days=1))
    batch = await memory.compactions.batch(request, 100)
    line = SummaryLine(kind="digest", text="They cache in Valkey.", turn_id="t1", at=turn.occurred_at)
    covers = tuple(episode.episode_id for episode in batch.episodes)
    result = Consolidation(lines=(line,), covers=covers, model="test")
    compaction = await memory.compactions.apply(request, result, request.event_id())
    found = (await memory.recall("valkey cache")).episodes
    assert texts(found) == ["They cache in Valkey."]
    assert (found[0].session_id, found[0].turn_id, found[0].speaker) == ("old", "t1", Speaker.AGENT)
    await memory.compactions.undo(APP, memory.user, compaction)
    assert len((await memory.recall("valkey cache")).episodes) == 2


async def test_a_statement_that_outlasts_its_deadline_is_given_up(memory: Memory) -> None:
    async def fill(number: int) -> None:
        await memory.tell(a_turn(memory.user, number), *[f"cache {number} {n}" * 40 for n in range(100)])

    for number in range(10):
        await fill(number)
    asked = ContextRequest(app=APP, user_id=memory.user, session_id="now", query="cache " * 100)
    with pytest.raises(DependencyUnavailable):
        await memory.reader.recall(asked.model_copy(update={"deadline_ms": 1}), a_vector(), MODEL, tail=0)
