"""A memory made by the real handlers in real stores; and every word of it, wherever it is."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql
from psycopg.rows import dict_row

from lamina.dead_letters import Failure, parked
from lamina.envelope import encode
from lamina.events import CompactionRequested, TurnRecorded
from lamina.forgetting import Selection
from lamina.model import SessionKey, Turn
from lamina.models.offline import OfflineModel
from lamina.models.tokens import EstimatedTokens
from lamina.ports import IndexedLetter
from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.database import Database
from lamina.postgres.dead_letters import PostgresDeadLetterIndex
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.forgetting import PostgresForgetting
from lamina.postgres.reader import PostgresReader
from lamina.postgres.summaries import PostgresSummaries
from lamina.pubsub.clients import publisher_client
from lamina.pubsub.publisher import PubSubPublisher
from lamina.settings import Settings
from lamina.testing.clock import StoppedClock
from lamina.testing.models import HashEmbedder, ScriptedModel
from lamina.testing.publisher import InMemoryPublisher
from lamina.valkey.buffer import ValkeyBuffer, tombstones_keys
from lamina.valkey.client import connect
from lamina.valkey.sessions import ValkeySessions
from lamina_services.compactor.handler import on_compaction_requested
from lamina_services.entity_extractor import handler as extractor
from lamina_services.episodic_embedder import handler as embedder
from lamina_services.forgetting.everywhere import Everywhere, Receipt
from lamina_services.summarizer import handler as summarizer
from lamina_services.turn_ingest.handler import ingest
from tests.builders import APP, BEGAN, a_turn
from tests.contract.dead_letter_yard import PROJECT, Yard
from tests.contract.pubsub_servers import OwnServer, World
from tests.fixtures_postgres import TestDatabase, TestServer

SETTINGS = Settings(summary_trigger_turns=3, summary_keep_turns=1)
STORY = {
    # session: (its predecessor, the project of each turn)
    "s1": (None, ["shop", "shop", "shop", "shop"]),
    "s2": ("s1", ["blog", "blog", "blog", "blog"]),
    "s3": (None, [None, "shop", None, None, None]),
    "s4": (None, ["blog", "blog", "blog"]),
}
Place = tuple[str, str]
Row = dict[str, Any]


def word(user: str, session: str, number: int) -> str:
    """What only this turn says."""
    return f"zq{user}{session}x{number}"


def story_of(user: str) -> list[Turn]:
    """Every turn says what its user likes, in a word of its own."""
    return [
        a_turn(
            user,
            number,
            session=session,
            project_id=project,
            previous_session_id=previous,
            occurred_at=BEGAN + timedelta(hours=hour, minutes=number),
            user=f"I prefer the {word(user, session, number)} theme.",
            assistant=f"Noted, {word(user, session, number)} it is.",
        )
        for hour, (session, (previous, projects)) in enumerate(STORY.items())
        for number, project in enumerate(projects, 1)
    ]


def words_of(turns: Sequence[Turn]) -> set[str]:
    return {word(turn.user_id, turn.session_id, int(turn.turn_id[1:])) for turn in turns}


class MemoryWorld:
    """The services' handlers, each with its own role's rights, and an operator."""

    def __init__(self, database: TestDatabase, valkey_url: str, pubsub: World) -> None:
        self.test_database = database
        self.valkey_url = valkey_url
        self.client = connect(valkey_url)
        self.buffer = ValkeyBuffer(self.client, ttl_s=600)
        self.yard = Yard(pubsub)
        self.topic = InMemoryPublisher()
        self.model, self.embedder, self.tokens = OfflineModel(), HashEmbedder(), EstimatedTokens()
        self._closing = AsyncExitStack()

    async def open(self) -> None:
        async def role(name: str) -> Database:
            return await self._closing.enter_async_context(self.test_database.open(f"lamina_{name}", size=4))

        self.summaries = PostgresSummaries(await role("summarizer"))
        self.entities = PostgresEntities(await role("entity_extractor"))
        self.episodes_database = await role("episodic_embedder")
        self.episodes = PostgresEpisodes(self.episodes_database)
        self.compactions = PostgresCompactions(await role("compactor"), SETTINGS)
        self.index = PostgresDeadLetterIndex(await role("dead_letter_recorder"))
        self.reader = PostgresReader(await role("context"))
        self.operator = await role("operator")
        self.publisher = PubSubPublisher(
            publisher_client(self.yard.world.endpoint), PROJECT, self.yard.prefix
        )
        self.dead = await self._closing.enter_async_context(self.yard.dead())
        self._closing.push_async_callback(self.publisher.aclose)
        self._closing.push_async_callback(self.yard.aclose)
        self._closing.push_async_callback(self.client.aclose)

    async def close(self) -> None:
        await self._closing.aclose()

    @property
    def everywhere(self) -> Everywhere:
        return Everywhere(
            PostgresForgetting(self.operator),
            self.buffer,
            ValkeySessions(self.client),
            self.dead,
            self.publisher,
            SETTINGS.summary_trigger_turns,
        )

    async def forget(self, selection: Selection) -> Receipt:
        return await self.everywhere.forget(selection, act=True)

    # --- what Pub/Sub delivers -------------------------------------------------------------------------

    async def publish(self, turn: Turn) -> None:
        await ingest(turn, buffer=self.buffer, publisher=self.topic)

    async def summarise(self, turn: Turn, **other: Any) -> None:
        parts: dict[str, Any] = {
            "buffer": self.buffer,
            "summaries": self.summaries,
            "model": self.model,
            "publisher": self.topic,
            "tokens": self.tokens,
            "clock": StoppedClock(),
            "settings": SETTINGS,
        }
        await summarizer.on_turn_recorded(TurnRecorded(turn=turn), **{**parts, **other})

    async def extract(self, turn: Turn, **other: Any) -> None:
        parts: dict[str, Any] = {"model": self.model, "embedder": self.embedder, "publisher": self.topic}
        await extractor.on_turn_recorded(
            TurnRecorded(turn=turn), entities=self.entities, **{**parts, **other}
        )

    async def embed(self, turn: Turn, **other: Any) -> None:
        parts: dict[str, Any] = {"embedder": self.embedder, "publisher": self.topic}
        await embedder.on_turn_recorded(TurnRecorded(turn=turn), episodes=self.episodes, **{**parts, **other})

    @property
    def stages(self) -> tuple[Callable[[Turn], Awaitable[None]], ...]:
        return (self.publish, self.summarise, self.extract, self.embed)

    async def live(self, turns: Sequence[Turn]) -> None:
        """What a turn goes through when all is well."""
        for turn in turns:
            for stage in self.stages:
                await stage(turn)

    async def compact(self, user: str, project: str | None, before: datetime, **other: Any) -> None:
        parts: dict[str, Any] = {"model": ScriptedModel()}
        await on_compaction_requested(
            CompactionRequested(app=APP, user_id=user, project_id=project, before=before),
            compactions=self.compactions,
            publisher=self.topic,
            tokens=self.tokens,
            settings=SETTINGS,
            **{**parts, **other},
        )

    async def fill(self, user: str) -> list[Turn]:
        """A memory with everything in it: compactions, dead letters and a rebuild in hand as well."""
        turns = story_of(user)
        await self.live(turns)
        for project in ("shop", None):
            await self.compact(user, project, BEGAN + timedelta(hours=2, minutes=3))
        for turn in turns:
            if turn.turn_id == "t1":
                await self.bury(turn)
        await self._begin_rebuild(turns)
        return turns

    async def bury(self, turn: Turn, subscription: str = "entity-extractor") -> None:
        """A worker gave up on it, and quoted it."""
        failure = Failure("ModelRefused", words_of([turn]).pop(), subscription, first_seen=turn.occurred_at)
        await self.publisher.park(subscription, parked(encode(TurnRecorded(turn=turn)), failure))
        await self.bury_index(turn, subscription)

    async def bury_index(self, turn: Turn, subscription: str = "entity-extractor") -> None:
        """The recorder was told of the dead letter."""
        await self.index.record(
            IndexedLetter(
                **turn.session.model_dump(),
                turn_id=turn.turn_id,
                subscription=subscription,
                error="ModelRefused",
                reason=words_of([turn]).pop(),
                failures=1,
                service=subscription,
                parked_at=turn.occurred_at,
                project_id=turn.project_id or "",
                occurred_at=turn.occurred_at,
            )
        )

    async def _begin_rebuild(self, turns: Sequence[Turn]) -> None:
        user = turns[0].user_id
        rebuild = uuid.uuid4()
        async with self.operator.as_user(APP, user) as conn:
            await conn.execute(
                """
                INSERT INTO lamina.rebuilds (rebuild_id, app, user_id, stage, maker, embedder)
                VALUES (%(id)s, %(app)s, %(user)s, 'entities', 'test', '')
                """,
                {"id": rebuild, "app": APP, "user": user},
            )
            for turn in turns:
                await conn.execute(
                    """
                    INSERT INTO lamina.rebuild_items (
                        rebuild_id, app, user_id, session_id, turn_id, result
                    ) VALUES (
                        %(id)s, %(app)s, %(user)s, %(session)s, %(turn)s, to_json(%(text)s::text)
                    )
                    """,
                    {
                        "id": rebuild,
                        "app": APP,
                        "user": user,
                        "session": turn.session_id,
                        "turn": turn.turn_id,
                        "text": words_of([turn]).pop(),
                    },
                )

    # --- what there is ---------------------------------------------------------------------------------

    async def rows(self, user: str) -> dict[str, list[Row]]:
        """Every row of the user, by table."""
        found: dict[str, list[Row]] = {}
        conn = await psycopg.AsyncConnection[Row].connect(self.test_database.owner, row_factory=dict_row)
        async with conn:
            names = await conn.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'lamina' AND tablename <> 'migrations'"
            )
            for name in sorted(row["tablename"] for row in await names.fetchall()):
                query = sql.SQL("SELECT t.*, t::text AS whole FROM {} AS t WHERE app = %s AND user_id = %s")
                rows = await conn.execute(query.format(sql.Identifier("lamina", name)), [APP, user])
                found[name] = sorted(await rows.fetchall(), key=lambda row: row["whole"])
        return found

    async def words(self, wanted: set[str]) -> set[str]:
        """Where any of these words is: in which tables, keys and dead letters."""
        places: set[str] = set()
        async with await psycopg.AsyncConnection.connect(self.test_database.owner) as conn:
            names = await conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'lamina'")
            for [name] in await names.fetchall():
                rows = await conn.execute(
                    sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier("lamina", name))
                )
                if any(each in row[0] for row in await rows.fetchall() for each in wanted):
                    places.add(name)
        for key, text in (await self.keys()).items():
            if any(each in text or each in key for each in wanted):
                places.add(key)
        for letter in await self.letters():
            text = f"{letter.message.data.decode()} {letter.message.attributes}"
            if any(each in text for each in wanted):
                places.add(f"dead letter of {letter.subscription}")
        return places

    async def letters(self) -> list[Any]:
        found = [letter async for letter in self.dead.scan()]
        await self.dead.release()
        return found

    async def keys(self) -> dict[str, str]:
        """Every key of the server, with what it holds."""
        client: Any = self.client
        held: dict[str, str] = {}
        async for name in client.scan_iter(match="lamina:*"):
            key = cast(bytes, name).decode()
            match await client.type(key):
                case b"hash":
                    held[key] = str(sorted((await client.hgetall(key)).items()))
                case b"zset":
                    held[key] = str(await client.zrange(key, 0, -1))
                case _:
                    held[key] = str(await client.get(key))
        return held

    async def somebody_waits(self) -> bool:
        """Whether somebody waits for an advisory lock of this database."""
        async with await psycopg.AsyncConnection.connect(self.test_database.owner) as conn:
            found = await conn.execute(
                """
                SELECT FROM pg_locks
                WHERE locktype = 'advisory' AND NOT granted
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                """
            )
            return await found.fetchone() is not None

    async def forget_marks(self, user: str) -> None:
        """No event is done any more, and nothing was stated: all is learned again."""
        async with self.operator.as_user(APP, user) as conn:
            for statement in ("DELETE FROM lamina.processed_events", "DELETE FROM lamina.statements"):
                await conn.execute(statement)

    async def forget_buffers_tombstones(self, user: str) -> None:
        """As a server that lost them."""
        client: Any = self.client
        await client.unlink(*tombstones_keys(APP, user))

    async def buffered(self, session: SessionKey) -> list[str]:
        return [turn.turn_id for turn in (await self.buffer.read(session)).turns]


class Slow:
    """A part whose one method does not come back before something else is done."""

    def __init__(self, part: Any, method: str) -> None:
        self.called, self.go_on = asyncio.Event(), asyncio.Event()
        self._part, self._method = part, method

    def __getattr__(self, name: str) -> Any:
        return self._slow if name == self._method else getattr(self._part, name)

    async def _slow(self, *arguments: Any) -> Any:
        try:
            return await getattr(self._part, self._method)(*arguments)
        finally:
            self.called.set()
            await self.go_on.wait()


def a_name() -> str:
    """A user whom no other test knows."""
    return uuid.uuid4().hex[:10]


@pytest.fixture(scope="module")
def pubsub() -> Iterator[World]:
    server = OwnServer()
    clients = World(server.endpoint)
    yield clients
    clients.close()
    server.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def world(postgres: TestServer, valkey_url: str, pubsub: World) -> AsyncIterator[MemoryWorld]:
    made = MemoryWorld(await postgres.create(), valkey_url, pubsub)
    await made.open()
    yield made
    await made.close()
