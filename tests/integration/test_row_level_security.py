"""No read returns another user's row, even where a query forgets its WHERE.

The tables come from the catalogue, so that a new one without a policy fails here.
"""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psycopg
import pytest
import pytest_asyncio
from psycopg import errors, sql
from psycopg.rows import TupleRow

from lamina.events import CompactionRequested
from lamina.forgetting import Selection
from lamina.model import Scope, Summary, SummaryLine, Turn
from lamina.ports import Consolidation, IndexedLetter
from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.database import Database
from lamina.postgres.dead_letters import PostgresDeadLetterIndex
from lamina.postgres.entities import PostgresEntities
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.forgetting import PostgresForgetting
from lamina.postgres.migrate import ROLES
from lamina.postgres.summaries import PostgresSummaries
from lamina.settings import Settings
from tests.builders import APP, BEGAN, a_chunk, a_statement, a_turn, a_vector
from tests.fixtures_postgres import TestDatabase, TestServer

WITHOUT_USERS = {"migrations"}
"""The record of what was applied to the database; no service may read it."""

Session = psycopg.AsyncConnection[TupleRow]


@dataclass
class Filled:
    """A database in which every table holds rows of two users of one app, and of a user of another."""

    database: TestDatabase
    tables: tuple[str, ...]

    async def login(self, role: str, app: str, user: str) -> Session:
        """A connection of a service that acts for a user, with none of our own code in between."""
        url = self.database.service(role)
        conn = await psycopg.AsyncConnection.connect(url, autocommit=True)
        await conn.execute(
            "SELECT set_config('lamina.app', %s, false), set_config('lamina.user_id', %s, false)", [app, user]
        )
        return conn


def a_letter(turn: Turn) -> IndexedLetter:
    return IndexedLetter(
        **turn.session.model_dump(),
        turn_id=turn.turn_id,
        subscription="entity-extractor",
        error="ModelRefused",
        reason=f"of {turn.user_id}",
        failures=1,
        service="entity-extractor",
        parked_at=BEGAN,
    )


async def fill(database: TestDatabase, user: str, app: str = APP) -> None:
    turn = a_turn(user, 1, app=app, project_id="CloudRetail", previous_session_id="s0")
    async with (
        database.open("lamina_summarizer", size=1) as summarizer,
        database.open("lamina_entity_extractor", size=1) as extractor,
        database.open("lamina_episodic_embedder", size=1) as embedder,
        database.open("lamina_compactor", size=1) as compactor,
        database.open("lamina_dead_letter_recorder", size=1) as recorder,
        database.open("lamina_operator", size=1) as operator,
    ):
        episodes = PostgresEpisodes(embedder)
        await episodes.record(turn, [a_chunk(0, f"said by {user}")])
        await episodes.embed(turn, {0: a_vector()}, "model-1", uuid.uuid4())
        line = SummaryLine(kind="fact", text=f"of {user}", turn_id="t1", at=BEGAN)
        summary = Summary(session=turn.session, version=1, lines=(line,), model="test-1")
        await PostgresSummaries(summarizer).commit(summary, [turn], uuid.uuid4())
        said = [a_statement(turn, f"of {user}"), a_statement(turn, "now", ordinal=1, scope=Scope.SESSION)]
        await PostgresEntities(extractor).absorb(turn, said, "test-1", uuid.uuid4())
        request = CompactionRequested(
            app=app, user_id=user, project_id="CloudRetail", before=BEGAN.replace(year=2027)
        )
        compactions = PostgresCompactions(compactor, Settings())
        covers = tuple(e.episode_id for e in (await compactions.batch(request, 10)).episodes)
        await compactions.apply(request, Consolidation((line,), covers, "test-1"), uuid.uuid4())
        await PostgresDeadLetterIndex(recorder).record(a_letter(turn))
        await PostgresForgetting(operator).forget(Selection(app, user, session_id="another"))
        await _fill_rebuilds(operator, app, user)


async def _fill_rebuilds(operator: Database, app: str, user: str) -> None:
    keys = {"id": uuid.uuid4(), "app": app, "user_id": user, "vector": str(a_vector())}
    async with operator.as_user(app, user) as conn:
        await conn.execute(
            """
            INSERT INTO lamina.rebuilds (rebuild_id, app, user_id, stage, maker, embedder)
            VALUES (%(id)s, %(app)s, %(user_id)s, 'entities', 'test-1', '')
            """,
            keys,
        )
        await conn.execute(
            """
            INSERT INTO lamina.rebuild_items (rebuild_id, app, user_id, session_id, turn_id, result)
            VALUES (%(id)s, %(app)s, %(user_id)s, 's1', 't1', '[]')
            """,
            keys,
        )
        await conn.execute(
            """
            INSERT INTO lamina.rebuild_vectors (rebuild_id, app, user_id, text_id, embedding)
            VALUES (%(id)s, %(app)s, %(user_id)s, %(id)s, %(vector)s::vector)
            """,
            keys,
        )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def filled(postgres: TestServer) -> AsyncIterator[Filled]:
    database = await postgres.create()
    for user in ("ana", "bo"):
        await fill(database, user)
    await fill(database, "ana", app="another app")
    async with await psycopg.AsyncConnection.connect(database.owner) as conn:
        rows = await conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'lamina'")
        yield Filled(database, tuple(sorted({row[0] for row in await rows.fetchall()} - WITHOUT_USERS)))


async def test_every_table_has_forced_row_level_security_and_rows_to_test_it_with(filled: Filled) -> None:
    assert len(filled.tables) >= 10
    async with await psycopg.AsyncConnection.connect(filled.database.owner) as conn:
        for table in filled.tables:
            found = await conn.execute(
                "SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE oid = %s::regclass",
                [f"lamina.{table}"],
            )
            assert await found.fetchone() == (True,), table
            users = await conn.execute(
                sql.SQL("SELECT count(DISTINCT (app, user_id)) FROM {}").format(_name(table))
            )
            assert await users.fetchone() == (3,), f"{table} holds nothing to test with"


@pytest.mark.parametrize("role", ROLES)
async def test_a_query_that_forgets_its_where_sees_the_users_own_rows_only(filled: Filled, role: str) -> None:
    async with await filled.login(role, APP, "ana") as conn:
        readable = await _readable(conn, filled.tables)
        assert readable
        for table in readable:
            assert await _owners(conn, table) == {(APP, "ana")}, table


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("app", "user"), [("", ""), (APP, ""), ("", "ana"), ("bo", APP), (APP, "nobody")])
async def test_whoever_acts_for_nobody_sees_nothing(filled: Filled, role: str, app: str, user: str) -> None:
    async with await filled.login(role, app, user) as conn:
        for table in await _readable(conn, filled.tables):
            assert await _owners(conn, table) == set(), table


@pytest.mark.parametrize("role", ROLES)
async def test_a_fresh_connection_sees_nothing(filled: Filled, role: str) -> None:
    async with await psycopg.AsyncConnection.connect(filled.database.service(role), autocommit=True) as conn:
        for table in await _readable(conn, filled.tables):
            assert await _owners(conn, table) == set(), table


async def test_the_next_transaction_of_a_pooled_connection_is_nobodys(filled: Filled) -> None:
    async with filled.database.open("lamina_context", size=1) as database:
        async with database.as_user(APP, "ana") as conn:
            [row] = await (await conn.execute("SELECT count(*) AS n FROM lamina.turns")).fetchall()
            assert row["n"] == 1
        async with database.as_nobody() as conn:
            [row] = await (await conn.execute("SELECT count(*) AS n FROM lamina.turns")).fetchall()
            assert row["n"] == 0
        async with database.as_user(APP, "bo") as conn:
            rows = await (await conn.execute("SELECT user_id FROM lamina.turns")).fetchall()
            assert [row["user_id"] for row in rows] == ["bo"]


_LETTERS_ONLY = "lamina_dead_letter_recorder"
"""Writes into its own table and no other; what is forgotten it asks."""
_OPERATOR = "lamina_operator"
"""Does everything for one user at a time, and is no service."""


@pytest.mark.parametrize("role", [role for role in ROLES if role not in ("lamina_context", _LETTERS_ONLY)])
async def test_nobody_writes_a_row_for_another_user(filled: Filled, role: str) -> None:
    async with await filled.login(role, APP, "ana") as conn:
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            await conn.execute(
                """
                INSERT INTO lamina.processed_events (app, user_id, consumer, event_id)
                VALUES (%s, 'bo', 'x', %s)
                """,
                [APP, uuid.uuid4()],
            )


async def test_the_recorder_writes_no_letter_for_another_user_and_reads_nothing_else(filled: Filled) -> None:
    async with await filled.login(_LETTERS_ONLY, APP, "ana") as conn:
        assert await _readable(conn, filled.tables) == ["dead_letters", "tombstones"]
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
            await conn.execute(
                """
                INSERT INTO lamina.dead_letters (
                    app, user_id, turn_id, session_id, subscription, error, reason, failures, service,
                    parked_at, trace_id, event_id
                ) VALUES (%s, 'bo', 't9', 's1', 'summarizer', 'E', '', 1, '', now(), '', '')
                """,
                [APP],
            )


async def test_an_update_that_forgets_its_where_changes_the_users_own_rows_only(filled: Filled) -> None:
    async with await filled.login("lamina_entity_extractor", APP, "ana") as conn, conn.transaction() as tx:
        changed = await conn.execute("UPDATE lamina.entities SET extractor = 'x' RETURNING app, user_id")
        assert set(await changed.fetchall()) == {(APP, "ana")}
        removed = await conn.execute("DELETE FROM lamina.entities RETURNING app, user_id")
        assert set(await removed.fetchall()) == {(APP, "ana")}
        raise psycopg.Rollback(tx)


async def test_the_context_role_has_no_right_to_write_anything(filled: Filled) -> None:
    async with await psycopg.AsyncConnection.connect(filled.database.owner) as conn:
        for table in filled.tables:
            name = f"lamina.{table}"
            allowed = await conn.execute(
                """
                SELECT has_table_privilege('lamina_context', %(name)s, 'INSERT, UPDATE, DELETE, TRUNCATE')
                    OR has_any_column_privilege('lamina_context', %(name)s, 'INSERT, UPDATE')
                """,
                {"name": name},
            )
            assert await allowed.fetchone() == (False,), table


async def test_a_login_of_the_context_role_starts_read_only_and_cannot_write_in_any_case(
    filled: Filled,
) -> None:
    async with await filled.login("lamina_context", APP, "ana") as conn:
        with pytest.raises(errors.ReadOnlySqlTransaction):
            await conn.execute("CREATE TEMPORARY TABLE x (y int)")
        await conn.execute("SET default_transaction_read_only = off")
        for table in filled.tables:
            with pytest.raises(errors.InsufficientPrivilege):
                await conn.execute(sql.SQL("DELETE FROM {}").format(_name(table)))


@pytest.mark.parametrize("role", ROLES)
async def test_only_the_compactor_may_look_across_users_and_even_it_sees_keys_only(
    filled: Filled, role: str
) -> None:
    async with await filled.login(role, APP, "ana") as conn:
        calls = (
            "SELECT * FROM lamina.plan_compactions(now())",
            "SELECT lamina.expire_memory(NULL, NULL, NULL)",
            "SELECT lamina.expire_dead_letters(NULL)",
        )
        for call in calls:
            if role == "lamina_compactor":
                await conn.execute(call)
            else:
                with pytest.raises((errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)):
                    await conn.execute(call)


@pytest.mark.parametrize("role", [role for role in ROLES if role != _OPERATOR])
async def test_no_service_may_observe_all_users(filled: Filled, role: str) -> None:
    async with await filled.login(role, APP, "ana") as conn:
        for call in ("lamina.stage_lag(now(), 10)", "lamina.dead_letters_by_error(now())"):
            with pytest.raises(errors.InsufficientPrivilege):
                await conn.execute(sql.SQL("SELECT * FROM ") + sql.SQL(call))


async def test_the_roles_that_look_across_users_have_no_members_and_read_no_content(filled: Filled) -> None:
    async with await psycopg.AsyncConnection.connect(filled.database.owner) as conn:
        members = await conn.execute(
            """
            SELECT m.member::regrole::text
            FROM pg_auth_members AS m
            WHERE m.roleid IN (
                'lamina_planner'::regrole, 'lamina_janitor'::regrole, 'lamina_observer'::regrole
            )
              AND m.member <> 'postgres'::regrole
            """
        )
        assert await members.fetchall() == []
        readable = await conn.execute(
            """
            SELECT c.table_name, c.column_name
            FROM information_schema.columns AS c
            CROSS JOIN unnest('{lamina_planner,lamina_janitor,lamina_observer}'::text[]) AS role
            WHERE c.table_schema = 'lamina'
              AND c.column_name IN ('text', 'events', 'header', 'lines', 'search', 'reason')
              AND has_column_privilege(role, 'lamina.' || c.table_name, c.column_name, 'SELECT')
            """
        )
        assert await readable.fetchall() == []


async def _readable(conn: Session, tables: tuple[str, ...]) -> list[str]:
    found = await conn.execute(
        "SELECT t FROM unnest(%s::text[]) AS t WHERE has_table_privilege('lamina.' || t, 'SELECT')",
        [list(tables)],
    )
    return [row[0] for row in await found.fetchall()]


async def _owners(conn: Session, table: str) -> set[tuple[str, str]]:
    found = await conn.execute(sql.SQL("SELECT DISTINCT app, user_id FROM {}").format(_name(table)))
    return {(row[0], row[1]) for row in await found.fetchall()}


def _name(table: str) -> sql.Identifier:
    return sql.Identifier("lamina", table)
