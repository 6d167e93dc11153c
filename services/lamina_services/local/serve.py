"""Runs one service under functions-framework, in one process: `python -m lamina_services.local.serve`.

The cloud runs the same main.py and target under functions-framework's own server.
"""

import importlib.util
import socket
import sys
from pathlib import Path

import uvicorn
from functions_framework.aio import create_asgi_app  # pyright: ignore[reportUnknownVariableType] - untyped

from lamina.topology import Service, load_topology

_GRACE_S = 5


def source_of(service: Service) -> Path:
    """The service's main.py."""
    package = importlib.util.find_spec(f"lamina_services.{service.package}")
    if package is None or not package.submodule_search_locations:
        sys.exit(f"lamina_services.{service.package} is not installed")
    return Path(package.submodule_search_locations[0], "main.py")


def main(name: str, descriptor: int) -> None:
    """Serve until SIGTERM, on a listening socket that the parent opened."""
    service = load_topology().services[name]
    app = create_asgi_app(service.target, str(source_of(service)))
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
