"""A push endpoint that records what it gets and answers as told."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass(frozen=True)
class Push:
    """One request: header names in lower case, values as the bytes on the wire read as latin-1."""

    headers: dict[str, str]
    body: bytes

    @property
    def envelope(self) -> Any:
        """The JSON of a wrapped push."""
        return json.loads(self.body)

    @property
    def data(self) -> bytes:
        """The data of a wrapped push."""
        return base64.b64decode(self.envelope["message"].get("data", ""))


class Endpoint:
    """Listens on a free port. `answer` maps a push to the status; it runs in a thread for each connection."""

    def __init__(self, port: int = 0) -> None:
        self.pushes: list[Push] = []
        self.answer: Callable[[Push], int] = lambda _: 204
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                push = Push({name.lower(): value for name, value in self.headers.items()}, body)
                endpoint.pushes.append(push)
                status = endpoint.answer(push)
                if status == 102:
                    self.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\n")
                    status = 200
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class QuietServer(ThreadingHTTPServer):
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a pusher may close its connection at any time

        self._server = QuietServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/push?token=a"
        threading.Thread(target=lambda: self._server.serve_forever(0.01), daemon=True).start()

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A fresh endpoint that acknowledges everything until it is told otherwise."""
    running = Endpoint()
    yield running
    running.stop()
