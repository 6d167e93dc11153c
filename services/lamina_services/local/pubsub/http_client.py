"""A small HTTP/1.1 client for pushes: POST, keep-alive, the status code and nothing else.

General clients spend about a millisecond of CPU on a request, which would cap all pushes at a thousand a
second; this one spends a tenth of that. It also sees 102, which they skip.
"""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from lamina_services.local.pubsub.faults import EmulatorFault

_PROCESSING = 102


class PushFailed(EmulatorFault):
    """The endpoint gave no valid answer: refused, closed, or not HTTP."""


class Target(NamedTuple):
    """Where a URL leads."""

    host: str
    port: int
    tls: bool
    host_header: str
    path: str


@lru_cache(maxsize=1024)
def parse_url(url: str) -> Target:
    """Split an http or https URL; ValueError when it is neither, or lacks a host."""
    parts = urlsplit(url)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or not url.isascii()
        or not url.isprintable()
    ):
        raise ValueError(f"not an HTTP URL: {url!r}")
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host_header = parts.netloc.rpartition("@")[2]
    return Target(
        parts.hostname, parts.port or (443 if tls else 80), tls, host_header, path.replace(" ", "%20")
    )


class HttpClient:
    """Posts to any number of hosts and keeps idle connections for the next request."""

    def __init__(self) -> None:
        self._idle: defaultdict[tuple[str, int, bool], list[_Connection]] = defaultdict(list)
        self._open: set[_Connection] = set()
        self._tls: ssl.SSLContext | None = None

    async def post(self, url: str, headers: Iterable[tuple[str, str]], body: bytes) -> int:
        """Send one request and return the status. Header names and values must be valid ASCII already.

        Raises PushFailed or OSError; a time limit is the caller's (cancelling drops the connection).
        """
        target = parse_url(url)
        lines = [
            f"POST {target.path} HTTP/1.1",
            f"host: {target.host_header}",
            f"content-length: {len(body)}",
        ]
        lines.extend(f"{name}: {value}" for name, value in headers)
        request = "\r\n".join([*lines, "", ""]).encode("ascii") + body
        idle = self._idle[target.host, target.port, target.tls]
        while idle:
            connection = idle.pop()
            if connection.usable:
                try:
                    return await self._exchange(connection, request, idle)
                except ConnectionResetError:
                    continue  # closed by the server while it was idle; the request may be sent again
        return await self._exchange(await self._connect(target), request, idle)

    async def close(self) -> None:
        """Drop all connections."""
        closing = list(self._open)
        for connection in closing:
            connection.abort()
        await asyncio.gather(*(connection.lost for connection in closing))

    async def _connect(self, target: Target) -> "_Connection":
        if target.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        loop = asyncio.get_running_loop()
        context = self._tls if target.tls else None
        _, connection = await loop.create_connection(_Connection, target.host, target.port, ssl=context)
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    async def _exchange(self, connection: "_Connection", request: bytes, idle: list["_Connection"]) -> int:
        try:
            status = await connection.exchange(request)
        except BaseException:
            connection.abort()
            raise
        if connection.usable:
            idle.append(connection)
        return status


class _Connection(asyncio.Protocol):
    _transport: asyncio.Transport  # set before the connection is handed out

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.usable = True
        self.lost: asyncio.Future[None] = loop.create_future()
        self._answer: asyncio.Future[int] | None = None
        self._answered = False
        self._parser = httptools.HttpResponseParser(self)

    async def exchange(self, request: bytes) -> int:
        """Send a request, return its status; ConnectionResetError when closed without a byte."""
        self._answer = asyncio.get_running_loop().create_future()
        self._answered = False
        self._transport.write(request)
        return await self._answer

    def abort(self) -> None:
        """Drop the connection."""
        self.usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of asyncio's

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(PushFailed(f"not an HTTP answer: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.usable = False
        self._end(PushFailed("closed within the answer") if self._answered else ConnectionResetError())
        if not self.lost.done():
            self.lost.set_result(None)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        status = self._parser.get_status_code()
        if status == _PROCESSING:  # counts as an answer; what follows it belongs to nobody
            self.usable = False
        elif 100 <= status < 200:
            return
        if not self._parser.should_keep_alive():
            self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(status)
        if not self.usable:
            self.abort()

    def _end(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
