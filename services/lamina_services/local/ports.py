"""Ports on loopback: the preferred one where it is free, else whichever is."""

import asyncio
import contextlib
import socket
import sys

LOOPBACK = "127.0.0.1"


def listening(preferred: int) -> socket.socket:
    """A listening socket, to hand to a child: it survives the child's crashes, and callers wait meanwhile."""
    listener = _bound(preferred)
    listener.listen(2048)
    return listener


class HeldPort:
    """A port for a program that opens it itself.

    On Linux we stay bound without listening, so that the kernel gives the port to nobody else meanwhile;
    a server that sets SO_REUSEADDR, as all of ours do, can still listen there.
    """

    def __init__(self, preferred: int = 0) -> None:
        self._holder = _bound(preferred)
        self.number = port_of(self._holder)
        if sys.platform != "linux":
            self._holder.close()

    def release(self) -> None:
        """Let go of it."""
        self._holder.close()


async def can_connect(endpoint: str, *, timeout_s: float = 2) -> bool:
    """Whether somebody listens at `host:port`."""
    host, _, port = endpoint.rpartition(":")
    try:
        opening = asyncio.open_connection(host or LOOPBACK, int(port))
        _, writer = await asyncio.wait_for(opening, timeout_s)
    except (OSError, ValueError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def port_of(bound: socket.socket) -> int:
    """The port that a socket is bound to."""
    return int(bound.getsockname()[1])


def _bound(preferred: int) -> socket.socket:
    if preferred:
        try:
            return _bind(preferred)
        except OSError:  # taken: any other serves as well
            pass
    return _bind(0)


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port:  # right after a restart, closing connections still linger there
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, port))
        # For port 0 only now: set before, the kernel might choose a port that somebody else holds like this.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        bound.close()
        raise
    return bound
