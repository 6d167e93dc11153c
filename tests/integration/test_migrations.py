"""Migrations: each applied once, in order, and never changed afterwards."""

import asyncio
import re
import subprocess
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import errors, sql

from lamina.errors import ConfigurationError, DependencyUnavailable
from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.migrate import ROLES, Migration, grant_login, migrate, packaged
from lamina.settings import Settings
from tests.builders import a_chunk, a_turn
from tests.fixtures_postgres import TestDatabase, TestServer, binary, login_of, running_server

BARE = "template0"


def schema_of(database: TestDatabase) -> str:
    """Everything that pg_dump says of the schema: tables, policies, functions, owners and grants."""
    dump = subprocess.run(  # noqa: S603 - the binary of the wheel, on a database of this test
        [binary("pg_dump"), "--schema-only", "--schema=lamina", database.owner],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return re.sub(r"^\\(un)?restrict .*$", "", dump, flags=re.MULTILINE)  # a new random word each time


async def test_a_database_that_was_upgraded_step_by_step_equals_a_fresh_one(postgres: TestServer) -> None:
    fresh, upgraded = await postgres.create(BARE), await postgres.create(BARE)
    names = [migration.name for migration in packaged()]
    assert await migrate(fresh.owner) == names
    for count in range(1, len(names) + 1):
        assert await migrate(upgraded.owner, packaged()[:count]) == [names[count - 1]]
    assert schema_of(upgraded) == schema_of(fresh)


async def test_migrating_again_changes_nothing(postgres: TestServer) -> None:
    database = await postgres.create()
    before = schema_of(database)
    assert await migrate(database.owner) == []
    assert schema_of(database) == before


async def test_runs_at_the_same_time_apply_each_migration_once(postgres: TestServer) -> None:
    database = await postgres.create(BARE)
    runs = await asyncio.gather(*(migrate(database.owner) for _ in range(3)))
    assert sorted(name for run in runs for name in run) == [migration.name for migration in packaged()]


async def test_an_applied_migration_that_was_edited_is_refused(postgres: TestServer) -> None:
    database = await postgres.create()
    *others, last = packaged()
    edited = Migration(last.name, last.statements + b"-- one more thing\n")
    with pytest.raises(ConfigurationError, match=f"{last.name} was edited"):
        await migrate(database.owner, [*others, edited])


async def test_line_endings_are_no_edit(postgres: TestServer) -> None:
    database = await postgres.create()
    windows = [Migration(each.name, each.statements.replace(b"\n", b"\r\n")) for each in packaged()]
    assert await migrate(database.owner, windows) == []


async def test_a_migration_that_fails_leaves_nothing_behind(postgres: TestServer) -> None:
    database = await postgres.create()
    before = schema_of(database)
    broken = Migration("9000_broken.sql", b"CREATE TABLE lamina.half (x int); SELECT 1 / 0;")
    with pytest.raises(errors.DivisionByZero):
        await migrate(database.owner, [*packaged(), broken])
    assert schema_of(database) == before


async def test_a_migration_that_comes_too_late_in_the_order_is_refused(postgres: TestServer) -> None:
    database = await postgres.create()
    with pytest.raises(ConfigurationError, match=r"0000_first\.sql .* renumber"):
        await migrate(database.owner, [Migration("0000_first.sql", b"SELECT 1"), *packaged()])


async def test_a_database_newer_than_the_code_is_refused(postgres: TestServer) -> None:
    database = await postgres.create()
    with pytest.raises(ConfigurationError, match="newer than this version"):
        await migrate(database.owner, packaged()[:-1])


async def test_an_owner_who_is_no_superuser_can_migrate_as_on_alloydb() -> None:
    with running_server() as server:  # of its own: there, the migrator makes the roles
        database = await server.create(BARE)
        await server.run(
            sql.SQL("CREATE ROLE migrator LOGIN CREATEROLE"),
            sql.SQL("ALTER DATABASE {} OWNER TO migrator").format(sql.Identifier(database.name)),
        )
        async with await psycopg.AsyncConnection.connect(database.owner, autocommit=True) as conn:
            await conn.execute("CREATE EXTENSION vector")
        await migrate(database.url("migrator"))
        for role in ROLES:
            await grant_login(database.url("migrator"), role, login_of(role), "secret")
        async with (
            database.open("lamina_episodic_embedder", size=1) as embedder,
            database.open("lamina_compactor", size=1) as compactor,
        ):
            await PostgresEpisodes(embedder).record(a_turn("ana"), [a_chunk(0, "text")])
            compactions = PostgresCompactions(compactor, Settings(session_days=1, archive_days=1))
            assert [request.user_id for request in await compactions.plan(datetime.now(UTC))] == ["ana"]
            assert set((await compactions.expire(datetime.now(UTC))).values()) == {0}
        # Row-level security holds back the owner of the tables as well.
        async with await psycopg.AsyncConnection.connect(database.url("migrator")) as conn:
            assert await (await conn.execute("SELECT FROM lamina.turns")).fetchall() == []


async def test_who_may_not_create_the_extension_is_told_so_in_one_line(postgres: TestServer) -> None:
    database = await postgres.create(BARE)
    await postgres.run(
        sql.SQL("CREATE ROLE weakling LOGIN"),
        sql.SQL("GRANT CREATE ON DATABASE {} TO weakling").format(sql.Identifier(database.name)),
    )
    with pytest.raises(ConfigurationError, match="CREATE EXTENSION vector"):
        await migrate(database.url("weakling"))


async def test_a_server_without_pgvector_is_named_as_such(postgres: TestServer) -> None:
    database = await postgres.create(BARE)
    await postgres.run(
        sql.SQL("ALTER DATABASE {} SET extension_control_path = '/nowhere'").format(
            sql.Identifier(database.name)
        )
    )
    with pytest.raises(ConfigurationError, match=r"pgvector 0\.8 .* not installed"):
        await migrate(database.owner)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(DependencyUnavailable):
        await migrate("postgresql://nobody@127.0.0.1:1/nowhere?connect_timeout=2")


async def test_a_login_acts_as_the_one_role_it_was_given(postgres: TestServer) -> None:
    database = await postgres.create()
    async with await psycopg.AsyncConnection.connect(database.service("lamina_compactor")) as conn:
        assert conn.info.user == login_of("lamina_compactor")
        with pytest.raises(errors.InsufficientPrivilege):
            await conn.execute("SELECT FROM lamina.turns")


async def test_a_role_that_does_not_exist_is_refused(postgres: TestServer) -> None:
    database = await postgres.create()
    with pytest.raises(ConfigurationError, match="lamina_planner"):
        await grant_login(database.owner, "lamina_planner", "someone")
