"""A small endpoint that speaks Gemini's API over HTTP as google-genai calls it, and misbehaves on request."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lamina.settings import Settings


@dataclass(frozen=True)
class Reply:
    """What the endpoint sends back."""

    status: int = 200
    body: bytes = b"{}"
    delay_s: float = 0.0
    claimed_length: int | None = None


@dataclass(frozen=True)
class Request:
    """What the endpoint was sent."""

    method: str
    """generateContent, batchEmbedContents, embedContent or (on Vertex, for older models) predict."""
    model: str
    body: dict[str, Any]
    key: str | None

    @property
    def prompt(self) -> str:
        """The text of the first content."""
        return str(self.body["contents"][0]["parts"][0]["text"])

    @property
    def texts(self) -> list[str]:
        """The texts to embed, in whichever of the three forms they came."""
        if self.method == "predict":
            return [str(one["content"]) for one in self.body["instances"]]
        requests = self.body["requests"] if self.method == "batchEmbedContents" else [self.body]
        return [str(one["content"]["parts"][0]["text"]) for one in requests]


Answerer = Callable[[Request], Reply]


@dataclass
class GeminiEndpoint:
    """Gives the scripted replies first, in order, then what `otherwise` says."""

    url: str = ""
    script: deque[Reply | Answerer] = field(default_factory=deque[Reply | Answerer])
    otherwise: Answerer = lambda _: answering({})
    requests: list[Request] = field(default_factory=list[Request])

    def reply(self, request: Request) -> Reply:
        """Note the request, and the reply to it."""
        self.requests.append(request)
        step = self.script.popleft() if self.script else self.otherwise
        return step if isinstance(step, Reply) else step(request)

    def settings(self, **changes: Any) -> Settings:
        """Settings that lead to this endpoint, with an invented key."""
        values = {
            "GEMINI_API_KEY": "invented-key",
            "GOOGLE_GENAI_USE_VERTEXAI": False,
            "gemini_base_url": self.url,
            "model_timeout_s": 5,
            "model_attempts": 3,
        }
        return Settings.model_validate({**values, **changes})


def answering(answer: object, *, finish: str = "STOP", thoughts: int = 7) -> Reply:
    """A candidate whose text is this JSON value (a string is sent as it is), with usage."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": finish}
    return _json({"candidates": [candidate], "usageMetadata": _usage(thoughts)})


def refusing(finish: str) -> Reply:
    """A candidate without content that says why it stopped."""
    return _json({"candidates": [{"finishReason": finish}], "usageMetadata": _usage(0)})


def blocking(reason: str) -> Reply:
    """The prompt was blocked."""
    return _json({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 100}})


def failing(status: int, name: str, message: str = "invented", details: list[Any] | None = None) -> Reply:
    """An error in the form of Google's APIs."""
    error = {"code": status, "status": name, "message": message, "details": details or []}
    return Reply(status, json.dumps({"error": error}).encode())


def embedding(request: Request) -> Reply:
    """768 numbers for each text: its length, its first character, and a constant. Not of length 1."""
    vectors = [[float(len(text)), float(ord(text[0])), 3.0, *([0.0] * 765)] for text in request.texts]
    match request.method:
        case "predict":
            read = {"token_count": 9}
            answer = [{"embeddings": {"values": vector, "statistics": read}} for vector in vectors]
            return _json({"predictions": answer})
        case "embedContent":
            return _json({"embedding": {"values": vectors[0]}})
        case _:
            return _json({"embeddings": [{"values": vector} for vector in vectors]})


def cut_off(reply: Reply) -> Reply:
    """The same, of which only half arrives, as a whole."""
    return Reply(body=reply.body[: len(reply.body) // 2])


def hung_up(reply: Reply) -> Reply:
    """The same, of which half arrives before the connection closes."""
    return Reply(body=reply.body[: len(reply.body) // 2], claimed_length=len(reply.body))


def late(reply: Reply, delay_s: float) -> Reply:
    """The same, later."""
    return Reply(reply.status, reply.body, delay_s)


@contextmanager
def gemini_endpoint() -> Generator[GeminiEndpoint]:
    """Serve on a free loopback port."""
    endpoint = GeminiEndpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model, _, method = self.path.rpartition("/")[2].partition(":")
            reply = endpoint.reply(Request(method, model, body, self.headers.get("x-goog-api-key")))
            time.sleep(reply.delay_s)
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(reply.claimed_length or len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            self.close_connection = reply.claimed_length is not None

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that gave up waiting is part of the script."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _json(value: object) -> Reply:
    return Reply(body=json.dumps(value).encode())


def _usage(thoughts: int) -> dict[str, int]:
    return {
        "promptTokenCount": 120,
        "candidatesTokenCount": 30,
        "thoughtsTokenCount": thoughts,
        "cachedContentTokenCount": 64,
        "totalTokenCount": 150 + thoughts,
    }
