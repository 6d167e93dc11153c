"""The database's edge: transactions for a user, and the driver's errors made ours."""

import asyncio
import itertools
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from lamina.errors import ConstraintViolated, DependencyUnavailable, StaleVersion
from lamina.model import MAX_IDENTIFIER_BYTES, Scope
from lamina.postgres.database import Database, Query
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from tests.builders import APP, a_chunk, a_statement, a_turn, a_user
from tests.fixtures_postgres import TestDatabase, TestServer, login_of

ROLE = "lamina_episodic_embedder"
BACKEND: Query = ("SELECT pg_backend_pid() AS pid", {})


@pytest_asyncio.fixture(loop_scope="session")
async def database(memory_database: TestDatabase) -> AsyncIterator[Database]:
    async with memory_database.open(ROLE, size=2) as opened:
        yield opened


async def mark(database: Database, user: str, event_id: uuid.UUID | None = None) -> None:
    async with database.as_user(APP, user) as conn:
        await conn.execute(
            """
            INSERT INTO lamina.processed_events (app, user_id, consumer, event_id)
            VALUES (%(app)s, %(user)s, 'test', %(event_id)s)
            """,
            {"app": APP, "user": user, "event_id": event_id or uuid.uuid4()},
        )


async def marks(database: Database, user: str) -> int:
    [[row]] = await database.read(APP, user, [("SELECT count(*) AS n FROM lamina.processed_events", {})])
    return row["n"]


async def test_a_transaction_commits_where_its_body_succeeds(database: Database) -> None:
    user = a_user()
    await mark(database, user)
    assert await marks(database, user) == 1


async def test_a_transaction_whose_body_fails_leaves_nothing(database: Database) -> None:
    user = a_user()

    async def fail_after_writing() -> None:
        async with database.as_user(APP, user) as conn:
            await conn.execute(
                "INSERT INTO lamina.processed_events VALUES (%(app)s, %(user)s, 'test', %(id)s)",
                {"app": APP, "user": user, "id": uuid.uuid4()},
            )
            raise KeyError

    with pytest.raises(KeyError):
        await fail_after_writing()
    assert await marks(database, user) == 0


async def test_an_error_that_surfaces_at_the_commit_is_translated_and_leaves_nothing(
    database: Database,
) -> None:
    user, event_id = a_user(), uuid.uuid4()
    await mark(database, user, event_id)
    with pytest.raises(ConstraintViolated) as caught:
        await mark(database, user, event_id)
    assert isinstance(caught.value.__cause__, psycopg.errors.UniqueViolation)
    assert user not in str(caught.value)
    await mark(database, user)
    assert await marks(database, user) == 2


async def test_a_transaction_that_fails_says_so_once_and_the_driver_logs_nothing(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    user, event_id = a_user(), uuid.uuid4()
    await mark(database, user, event_id)

    async def fail(*, at_a_fetch: bool, behind: int, own: bool) -> None:
        insert = "INSERT INTO lamina.processed_events VALUES (%(app)s, %(user)s, 'test', %(id)s) RETURNING 1"
        async with database.as_user(APP, user) as conn:
            taken = await conn.execute(insert, {"app": APP, "user": user, "id": event_id})
            for _ in range(behind):
                await conn.execute(insert, {"app": APP, "user": user, "id": uuid.uuid4()})
            if own:
                raise StaleVersion("another worker was faster")
            if at_a_fetch:
                await taken.fetchall()

    for case in itertools.product([False, True], [0, 3], [False, True]):
        with pytest.raises((ConstraintViolated, StaleVersion)):
            await fail(at_a_fetch=case[0], behind=case[1], own=case[2])
        assert await marks(database, user) == 1
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psycopg")] == []


async def test_one_round_of_reading_takes_several_queries(database: Database) -> None:
    [one, two] = await database.read(APP, "ana", [("SELECT 1 AS n", {}), ("SELECT %(n)s AS n", {"n": 2})])
    assert (one, two) == ([{"n": 1}], [{"n": 2}])


async def test_reading_cannot_write(database: Database) -> None:
    insert: Query = (
        "INSERT INTO lamina.processed_events VALUES (%(app)s, 'ana', 'test', %(id)s)",
        {"app": APP, "id": uuid.uuid4()},
    )
    with pytest.raises(DependencyUnavailable, match="25006"):
        await database.read(APP, "ana", [insert])
    assert await marks(database, "ana") == 0


ERRORS: list[tuple[Query, type[Exception]]] = [
    (("SELECT 1 / 0", {}), ConstraintViolated),
    (("SELECT %(text)s::text", {"text": "a\x00b"}), ConstraintViolated),
    (("SELECT nonsense", {}), DependencyUnavailable),
    (("SELECT FROM lamina.not_there_yet", {}), DependencyUnavailable),
    (("DELETE FROM lamina.turns", {}), ConstraintViolated),
    (("SELECT pg_sleep(5)", {}), DependencyUnavailable),
]


@pytest.mark.parametrize(("query", "error"), ERRORS)
async def test_errors_say_whether_trying_again_can_help(
    memory_database: TestDatabase, query: Query, error: type[Exception]
) -> None:
    database = Database(memory_database.service(ROLE), size=1, timeout_s=0.5)
    with pytest.raises(error):
        async with database.as_user(APP, "ana") as conn:
            await (await conn.execute(*query)).fetchall()
    # The connection is fit for the next one.
    assert await database.read(APP, "ana", [("SELECT 1 AS n", {})]) == [[{"n": 1}]]
    await database.close()


async def test_the_longest_names_that_a_turn_may_have_fit_every_index(
    database: Database, memory_database: TestDatabase
) -> None:
    # Characters of four bytes that do not compress, in every name.
    name = "".join(chr(0x20000 + (n * 7919) % 40000) for n in range(MAX_IDENTIFIER_BYTES // 4))
    turn = a_turn(
        name, app=name[::-1], session=name[5:] + name[:5], turn_id=name[9:] + name[:9], project_id=name[3:]
    )
    await PostgresEpisodes(database).record(turn, [a_chunk(0, "found")])
    statement = a_statement(turn, "I like tabs", subject=(name * 4)[:200], scope=Scope.PROJECT)
    async with memory_database.open("lamina_entity_extractor", size=1) as extracting:
        learned = await PostgresEntities(extracting).absorb(turn, [statement], "test", uuid.uuid4())
    assert len(learned.changed) == 1


async def test_a_server_that_is_frozen_is_unavailable_in_time_and_its_connection_is_used_again(
    memory_database: TestDatabase,
) -> None:
    database = Database(memory_database.service(ROLE), size=1, timeout_s=0.3)
    [[backend]] = await database.read(APP, "ana", [BACKEND])
    os.kill(backend["pid"], signal.SIGSTOP)
    try:
        for question in (database.read(APP, "ana", [BACKEND]), database.ping()):
            with pytest.raises(DependencyUnavailable):
                await asyncio.wait_for(question, 20)
    finally:
        os.kill(backend["pid"], signal.SIGCONT)
    async with asyncio.timeout(20):  # what was given up has let go of the one connection, in one piece
        while True:
            with suppress(DependencyUnavailable):
                assert await database.read(APP, "ana", [("SELECT 7 AS n", {})]) == [[{"n": 7}]]
                break
    await database.close()


async def test_a_server_that_is_not_there_is_unavailable_in_time() -> None:
    database = Database("postgresql://nobody@127.0.0.1:1/nowhere", timeout_s=0.3)
    with pytest.raises(DependencyUnavailable):
        await database.ping()
    await database.close()


async def test_a_database_that_is_not_migrated_does_not_answer_the_ping(postgres: TestServer) -> None:
    bare = await postgres.create("template0")
    async with bare.open(ROLE, size=1) as database:
        with pytest.raises(DependencyUnavailable, match="not migrated"):
            await database.ping()


async def test_connections_that_the_server_dropped_are_replaced_together(
    memory_database: TestDatabase, postgres: TestServer
) -> None:
    async with memory_database.open(ROLE, size=3) as database:
        await asyncio.gather(*(mark(database, a_user()) for _ in range(12)))
        await postgres.run(
            sql.SQL(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {} AND usename = {}"
            ).format(memory_database.name, login_of(ROLE))
        )
        with pytest.raises(DependencyUnavailable):
            await mark(database, a_user())
        for _ in range(6):
            await mark(database, a_user())


async def test_a_cancelled_request_gives_its_connection_back(memory_database: TestDatabase) -> None:
    async with memory_database.open(ROLE, size=1) as database:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await database.read(APP, "ana", [("SELECT pg_sleep(5)", {})])
        await mark(database, a_user())


async def test_each_new_connection_asks_for_its_own_credentials(memory_database: TestDatabase) -> None:
    asked: list[int] = []

    async def credentials() -> dict[str, Any]:
        asked.append(1)
        return {"user": login_of(ROLE), "application_name": f"connection {len(asked)}"}

    database = Database(memory_database.owner, size=1, kwargs=credentials)
    [[row]] = await database.read(
        APP, "ana", [("SELECT current_user AS who, current_setting('application_name') AS name", {})]
    )
    assert row == {"who": login_of(ROLE), "name": "connection 1"}
    await database.close()
