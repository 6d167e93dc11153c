"""Brings a database up to date: numbered SQL files, each applied once and in its own transaction.

Roles and what they may do are part of the migrations; who logs in is not: see `grant_login`.
"""

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files

import psycopg
from psycopg import errors, sql
from psycopg.rows import TupleRow

from lamina.errors import ConfigurationError, DependencyUnavailable

ROLES = (
    "lamina_summarizer",
    "lamina_entity_extractor",
    "lamina_episodic_embedder",
    "lamina_compactor",
    "lamina_context",
    "lamina_dead_letter_recorder",
    "lamina_operator",
)
"""What each service, and an operator, may do in the database. turn-ingest and guard need no database."""

READ_ONLY_ROLE = "lamina_context"
OLDEST_SERVER = 150000
OLDEST_PGVECTOR = (0, 8)
_LOCK = 0x6C616D696E61  # any number will do, as long as nobody else in the database uses it

Connection = psycopg.AsyncConnection[TupleRow]


@dataclass(frozen=True)
class Migration:
    """One file. Its checksum is recorded, so that a change to it after the fact is noticed."""

    name: str
    statements: bytes

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, whatever its line endings."""
        return hashlib.sha256(self.statements.replace(b"\r\n", b"\n")).hexdigest()


def packaged() -> tuple[Migration, ...]:
    """The migrations that come with this version of Lamina, in order."""
    folder = files("lamina.postgres").joinpath("migrations")
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return tuple(Migration(f.name, f.read_bytes()) for f in sorted(found, key=lambda f: f.name))


async def migrate(url: str, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is pending, and give the names. Safe to run twice at once.

    Connect directly and as the owner of the tables, not through a pooler. ConfigurationError where pgvector
    is missing, where an applied migration has been edited, or where the database is newer than this code.
    """
    wanted = packaged() if migrations is None else tuple(migrations)
    applied: list[str] = []
    with _explained():
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            await _check_server(conn)
            while (name := await _apply_next(conn, wanted)) is not None:
                applied.append(name)
    return applied


async def _apply_next(conn: Connection, wanted: Sequence[Migration]) -> str | None:
    """Apply the first pending migration; None where there is none."""
    async with conn.transaction():
        # Held until the transaction ends: a second run waits here, and then finds the migration applied.
        await conn.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        await conn.execute("CREATE SCHEMA IF NOT EXISTS lamina")
        await conn.execute(
            """
            CREATE TABLE IF NOT EXISTS lamina.migrations (
                name text COLLATE "C" PRIMARY KEY,
                checksum text NOT NULL,
                applied_at timestamptz NOT NULL DEFAULT now()
            )
            """
        )
        rows = await (await conn.execute("SELECT name, checksum FROM lamina.migrations")).fetchall()
        pending = _pending(dict(rows), wanted)
        if pending is None:
            return None
        await conn.execute(pending.statements)
        await conn.execute(
            "INSERT INTO lamina.migrations (name, checksum) VALUES (%s, %s)", [pending.name, pending.checksum]
        )
        return pending.name


def _pending(applied: dict[str, str], wanted: Sequence[Migration]) -> Migration | None:
    unknown = sorted(applied.keys() - {migration.name for migration in wanted})
    if unknown:
        raise ConfigurationError(f"the database is newer than this version of Lamina: it has {unknown[0]}")
    for migration in wanted:
        checksum = applied.get(migration.name)
        if checksum not in (None, migration.checksum):
            raise ConfigurationError(f"{migration.name} was edited after it had been applied: add a new file")
    missing = [migration for migration in wanted if migration.name not in applied]
    if missing and applied and missing[0].name < max(applied):
        raise ConfigurationError(f"{missing[0].name} comes before migrations that are applied: renumber it")
    return missing[0] if missing else None


async def _check_server(conn: Connection) -> None:
    if conn.info.server_version < OLDEST_SERVER:
        raise ConfigurationError("Lamina needs PostgreSQL 15 or later")
    found = await conn.execute(
        """
        SELECT coalesce(installed_version, default_version)
        FROM pg_catalog.pg_available_extensions
        WHERE name = 'vector'
        """
    )
    row = await found.fetchone()
    remedy = "Lamina needs pgvector 0.8 or later on the server (the extension is called `vector`)"
    if row is None:
        raise ConfigurationError(f"{remedy}: it is not installed there")
    version = tuple(int(piece) for piece in str(row[0]).split(".")[:2])
    if version < OLDEST_PGVECTOR:
        raise ConfigurationError(f"{remedy}: found {row[0]}; upgrade it, then ALTER EXTENSION vector UPDATE")


async def grant_login(url: str, role: str, login: str, password: str | None = None) -> None:
    """Let a login act as a service's role; it is made where it is missing, IAM users exist already.

    A member inherits what the role may do. A login of the context role is also set to start read-only
    transactions, where the one who runs this may alter it; the role's grants alone let it write nothing.
    """
    if role not in ROLES:
        raise ConfigurationError(f"{role!r} is no service role; there are {', '.join(ROLES)}")
    with _explained():
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
            await _ensure_login(conn, login, password)
            await conn.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(login)))
            if role == READ_ONLY_ROLE:
                await _start_read_only(conn, login)


async def _ensure_login(conn: Connection, login: str, password: str | None) -> None:
    found = await conn.execute("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %s", [login])
    if await found.fetchone() is None:
        await conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(login)))
    if password is not None:
        await conn.execute(
            sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(login), sql.Literal(password))
        )


async def _start_read_only(conn: Connection, login: str) -> None:
    try:
        await conn.execute(
            sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(sql.Identifier(login))
        )
    except errors.InsufficientPrivilege:
        return  # an IAM user belongs to the platform; it has no right to write in any case


@contextmanager
def _explained() -> Generator[None]:
    """An operator's mistake is one clear line."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"{_primary(error)}: run this as the database's owner, with CREATEROLE, after an administrator "
            "has run CREATE EXTENSION vector"
        ) from error
    except psycopg.OperationalError as error:
        raise DependencyUnavailable("the database", _primary(error)) from error


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip()
