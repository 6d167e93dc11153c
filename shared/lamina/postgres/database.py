"""One pool of connections, one way to act for a user, one place that knows the driver's errors."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, LiteralString, Self

import psycopg
from psycopg import errors
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from lamina.deadline import answer_of
from lamina.errors import ConstraintViolated, DependencyUnavailable, LaminaError, StaleVersion
from lamina.settings import Settings

Connection = psycopg.AsyncConnection[DictRow]
Parameters = Mapping[str, Any]
Query = tuple[LiteralString, Parameters]

_RACES = frozenset({"summary_version_once", "summary_covers_turn_once"})
"""Constraints that a worker meets when another one was faster."""

_PROGRAM_LIMIT = "54"  # class of "a row or an index entry is too large": no retry makes it smaller
_NOT_MIGRATED = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.InvalidSchemaName,
)


PING_S = 2.0
"""How long a health check waits."""


class Database:
    """A pool that opens when it is first used.

    `kwargs` may be a callable: it is called for each new connection, which is where a token belongs.
    `timeout_s` bounds both the wait for a connection and each statement.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int = 8,
        timeout_s: float = 10.0,
        kwargs: Callable[[], Any] | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._opening = asyncio.Lock()
        self._pool = AsyncConnectionPool[Connection](
            url,
            kwargs=_with_defaults(kwargs),
            min_size=1,
            max_size=size,
            timeout=timeout_s,
            # The pool waits longer with each attempt. Given up soon, the next request tries at once.
            reconnect_timeout=5.0,
            open=False,
            name="lamina",
        )

    @classmethod
    def from_settings(cls, settings: Settings, *, timeout_s: float = 10.0) -> Self:
        """The database that the settings name."""
        kwargs = None
        if settings.database_iam:
            from lamina.postgres.iam import IamLogin  # noqa: PLC0415 - google-auth only where it is used

            kwargs = IamLogin()
        url = settings.database_url.get_secret_value()
        return cls(url, size=settings.database_pool, timeout_s=timeout_s, kwargs=kwargs)

    @asynccontextmanager
    async def as_user(self, app: str, user_id: str) -> AsyncGenerator[Connection]:
        """One transaction that sees and writes this user's rows only; it commits where the body succeeds.

        Statements are pipelined: they are sent as they come, and only fetching a result waits for it. An
        error of a statement may therefore surface later, at a fetch or at the commit.
        """
        async with self._transaction() as conn:
            await self._become(conn, app, user_id)
            yield conn

    @asynccontextmanager
    async def as_nobody(self) -> AsyncGenerator[Connection]:
        """One transaction that sees no user's rows: for the functions that look across users."""
        async with self._transaction() as conn:
            await self._become(conn, "", "")
            yield conn

    @asynccontextmanager
    async def snapshot(self, app: str, user_id: str) -> AsyncGenerator[Connection]:
        """One read-only transaction that sees the user's rows as they are now, however long it reads.

        It is not pipelined, so that a server-side cursor can be used.
        """
        with translated():
            await self._open()
            async with self._pool.connection() as conn:
                await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                await self._become(conn, app, user_id)
                yield conn

    async def read(self, app: str, user_id: str, queries: Sequence[Query]) -> list[list[DictRow]]:
        """The rows of each query, from one read-only transaction that takes one round trip."""
        return await answer_of("database", self._read(app, user_id, queries), self._timeout_s + 1)

    async def _read(self, app: str, user_id: str, queries: Sequence[Query]) -> list[list[DictRow]]:
        async with self._transaction() as conn:
            await self._become(conn, app, user_id, read_only=True)
            cursors = [await conn.execute(query, parameters) for query, parameters in queries]
            await conn.commit()
            return [await cursor.fetchall() for cursor in cursors]

    async def ping(self) -> None:
        """Raise DependencyUnavailable unless the database answers and has been migrated."""
        await answer_of("database", self._ping(), PING_S)

    async def _ping(self) -> None:
        async with self.as_nobody() as conn:
            await (await conn.execute("SELECT 'lamina.turns'::regclass")).fetchall()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Connection]:
        with translated():
            await self._open()
            async with self._pool.connection() as conn:
                try:
                    async with conn.pipeline() as pipeline:
                        try:
                            yield conn
                            await conn.commit()
                        except (psycopg.Error, LaminaError):
                            await _drain(pipeline)
                            raise
                except psycopg.Error:
                    if conn.closed:
                        await self._replace_broken()
                    raise

    async def _become(self, conn: Connection, app: str, user_id: str, *, read_only: bool = False) -> None:
        await conn.execute(
            """
            SELECT set_config('lamina.app', %(app)s, true),
                   set_config('lamina.user_id', %(user_id)s, true),
                   set_config('statement_timeout', %(timeout)s, true),
                   set_config(
                       'transaction_read_only',
                       CASE WHEN %(read_only)s THEN 'on' ELSE current_setting('transaction_read_only') END,
                       true
                   )
            """,
            {
                "app": app,
                "user_id": user_id,
                "timeout": str(int(self._timeout_s * 1000)),
                "read_only": read_only,
            },
        )

    async def _open(self) -> None:
        if self._pool.closed:
            async with self._opening:
                if self._pool.closed:
                    await self._pool.open()

    async def _replace_broken(self) -> None:
        """A server that went away broke every connection: find that out now, not one request at a time."""
        try:
            async with asyncio.timeout(1):
                await self._pool.check()
        except (TimeoutError, psycopg.Error):
            return  # the error that brought us here is the one to report


async def _drain(pipeline: psycopg.AsyncPipeline) -> None:
    """Take in what came of the statements behind a failed one, or leaving the pipeline complains of it."""
    for _ in range(2):  # the first may stop at an error before it has read everything
        with suppress(psycopg.Error):
            await pipeline.sync()


def _with_defaults(kwargs: Callable[[], Any] | None) -> Any:
    # No server-side prepared statements: a pooler in transaction mode hands each transaction another server.
    defaults: dict[str, Any] = {
        "prepare_threshold": None,
        "row_factory": dict_row,
        "application_name": "lamina",
    }
    if kwargs is None:
        return defaults

    async def fresh() -> dict[str, Any]:
        given = kwargs()
        return {**defaults, **(await given if asyncio.iscoroutine(given) else given)}

    return fresh


@contextmanager
def translated() -> Generator[None]:
    """The one boundary at which the driver's errors become Lamina's."""
    try:
        yield
    except psycopg.Error as error:
        raise _meaning_of(error) from error


def _meaning_of(error: psycopg.Error) -> LaminaError:
    # The primary message only: the detail may quote what a user wrote.
    detail = f"{error.sqlstate or type(error).__name__}: {error.diag.message_primary or str(error).strip()}"
    if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name in _RACES:
        return StaleVersion(f"another worker was faster ({error.diag.constraint_name})")
    if isinstance(error, _NOT_MIGRATED):
        return DependencyUnavailable("database", f"it is not migrated to this version ({detail})")
    refused = isinstance(error, psycopg.IntegrityError | psycopg.DataError | psycopg.ProgrammingError)
    if refused or (error.sqlstate or "").startswith(_PROGRAM_LIMIT):
        return ConstraintViolated(detail)
    return DependencyUnavailable("database", detail)
