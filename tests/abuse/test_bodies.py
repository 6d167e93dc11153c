"""Bodies, headers, methods and paths that no honest client sends: refused clearly, and nothing is written."""

import gzip
import json
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lamina.turns import MAX_EVENTS
from lamina.web import MAX_BODY_BYTES, MAX_QUESTION_BYTES
from tests.abuse.stack import Stack

WHO = {"app": "shop", "user_id": "bodies", "session_id": "s"}
TURN = {**WHO, "turn_id": "t", "occurred_at": "2026-01-05T10:00:00Z"}
POSTS = {
    "/v1/turns": {**TURN, "user": "hello"},
    "/v1/context": {**WHO, "query": "hello"},
    "/v1/search": {"app": "shop", "user_id": "bodies", "query": "hello"},
    "/v1/fetch": {"app": "shop", "user_id": "bodies", "handle": "lamina:s/t/0/0"},
}
LIMITS = {"/v1/turns": MAX_BODY_BYTES}
BINARY = [b"ce-specversion: 1.0", b"ce-id: 1", b"ce-source: s", b"ce-type: lamina.turn.published.v1"]
JSON = b"Content-Type: application/json"
DEEP = 10_000


@dataclass(frozen=True)
class Answer:
    """What a socket gave back; status 0 where it was closed without a word."""

    status: int
    content_type: str
    body: bytes


def raw(stack: Stack, path: str, head: Sequence[bytes], body: bytes, *, half: bool = False) -> Answer:
    """Send these bytes as they are. `half`: and then hang up."""
    service = "turn-ingest" if path.endswith(("turns", "turn-ingest")) else "context"
    with socket.create_connection(("127.0.0.1", stack.ports[service]), timeout=30) as sock:
        lines = [b"POST %b HTTP/1.1" % path.encode(), b"Connection: close", *head]
        if not any(line.lower().startswith(b"host:") for line in head):
            lines.append(b"Host: x")
        try:
            sock.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            if half:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # answered before it had read everything, as it should
        received = b""
        try:
            while piece := sock.recv(65536):
                received += piece
        except ConnectionResetError:
            pass
    top, _, rest = received.partition(b"\r\n\r\n")
    status = int(top.split(b" ", 2)[1]) if top else 0
    types = [line for line in top.lower().split(b"\r\n") if line.startswith(b"content-type:")]
    return Answer(status, types[0].partition(b":")[2].strip().decode() if types else "", rest)


@pytest.fixture(scope="module", autouse=True)
def nothing_written(stack: Stack) -> Iterator[None]:
    before = stack.state()
    yield
    assert stack.state() == before
    stack.still_serves()


def plain(value: object) -> bytes:
    return json.dumps(value).encode()


BROKEN = {
    "empty": b"",
    "white-space": b" \n",
    "text": b"hello",
    "cut": b'{"app": "shop',
    "list": b"[]",
    "null": b"null",
    "number": b"1",
    "deep-objects": b'{"app":' * DEEP + b"1" + b"}" * DEEP,
    "deep-lists": b"[" * DEEP + b"]" * DEEP,
    "nan": b'{"app": NaN}',
    "overflow": b'{"app": 1e999}',
    "endless-number": b'{"app": ' + b"9" * 5_000 + b"}",
    "twice": b'{"user_id": "ana", "user_id": "victim"}',
    "twice-inside": b'{"events": [{"author": "a", "author": "b"}]}',
    "utf-16": '{"app": "shop"}'.encode("utf-16"),
    "utf-32": '{"app": "shop"}'.encode("utf-32"),
    "not-utf-8": b'{"app": "\xff"}',
    "surrogate-bytes": b'{"app": "\xed\xa0\x80"}',
    "overlong": b'{"app": "\xc0\xaf"}',
    "nul": b'\x00{"app": "shop"}',
    "trailing": b"{} {}",
    "single-quotes": b"{'app': 'shop'}",
    "comment": b"{/**/}",
}


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_json_object_of_the_kind_is_refused_by_name(stack: Stack, path: str, kind: str) -> None:
    answer = stack.post(path, BROKEN[kind])
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert all(line.partition(":")[0] for line in answer.json()["problems"])


def test_a_wide_object_costs_no_more_than_its_size(stack: Stack) -> None:
    names = b",".join(b'"k%d":1' % number for number in range(20_000))
    answer = stack.post("/v1/context", b"{" + names + b',"k0":2}')
    assert answer.status_code == 422
    assert "'k0' twice" in answer.json()["problems"][0]


@pytest.mark.parametrize("inside", [False, True], ids=["events", "parts"])
def test_more_events_or_parts_than_one_exchange_has_are_refused(stack: Stack, inside: bool) -> None:
    many: list[dict[str, Any]] = [{}] * (MAX_EVENTS + 1)
    events = [{"content": {"parts": many}}] if inside else many
    answer = stack.post("/v1/turns", {**TURN, "events": events})
    assert answer.status_code == 422
    assert f"at most {MAX_EVENTS:,}" in answer.json()["problems"][0]


@pytest.mark.parametrize("path", [*POSTS, "/push/turn-ingest"])
def test_a_body_over_the_limit_is_refused_whatever_its_length_header_says(stack: Stack, path: str) -> None:
    limit = MAX_BODY_BYTES if path in LIMITS or path.startswith("/push") else MAX_QUESTION_BYTES
    size = limit + 1
    chunk = b"%x\r\n%b\r\n" % (65536, b" " * 65536)
    chunked = [JSON, b"Transfer-Encoding: chunked"], chunk * (size // 65536 + 1) + b"0\r\n\r\n"
    honest = [JSON, b"Content-Length: %d" % size], b" " * size
    for head, body in (chunked, honest):
        answer = raw(stack, path, head, body)
        assert answer.status in (0, 413)  # 0: the connection was reset before the answer could be read
        if answer.status:
            assert answer.content_type == "application/problem+json"


@pytest.mark.parametrize("path", POSTS)
def test_a_length_header_that_lies_writes_nothing(stack: Stack, path: str) -> None:
    body = plain(POSTS[path])
    for length, half, expected in (
        (b"5", False, (422,)),
        (b"%d" % (len(body) + 50), True, (0, 422)),
        (b"-1", False, (400,)),
        (b"9" * 30, False, (400,)),
        (b"1e3", False, (400,)),
    ):
        answer = raw(stack, path, [JSON, b"Content-Length: " + length], body, half=half)
        assert answer.status in expected
    both = [JSON, b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked"]
    assert raw(stack, path, both, body).status == 400


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "announced",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/octet-stream"},
        {"content-type": "text/xml"},
        {"content-type": "json"},
        {"content-type": "application/jsonp"},
        {"content-encoding": "gzip"},
        {"content-encoding": "br, identity"},
    ],
    ids=str,
)
def test_only_a_body_that_is_announced_as_plain_json_is_read(
    stack: Stack, path: str, announced: dict[str, str]
) -> None:
    body = plain(POSTS[path])
    packed = gzip.compress(body) if "content-encoding" in announced else body
    answer = stack.post(path, packed, headers=announced)
    assert (answer.status_code, answer.headers["content-type"]) == (415, "application/problem+json")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_another_method_is_answered_405_with_the_one_that_is_allowed(stack: Stack, method: str) -> None:
    for path, body in POSTS.items():
        service = "turn-ingest" if path == "/v1/turns" else "context"
        answer = stack.http[service].request(method, path, json=body)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert answer.headers["content-type"] == "application/problem+json"
    receipt = "/v1/turns/t/receipt"
    if method not in ("GET", "HEAD"):
        assert stack.http["context"].request(method, receipt).headers["allow"] == "GET"


@pytest.mark.parametrize("method", ["TRACE", "PROPFIND", "BREW", "post"])
def test_a_method_that_http_does_not_know_is_refused(stack: Stack, method: str) -> None:
    request = b"%b /v1/turns HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % method.encode()
    with socket.create_connection(("127.0.0.1", stack.ports["turn-ingest"]), timeout=10) as sock:
        sock.sendall(request)
        assert sock.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 405")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//v1/turns",
        "/v1/../v1/turns",
        "/v1/turns/..",
        "/v1/turns/%2e%2e/turns",
        "/v1/turns%00",
        "/v1/turns;x",
        "/V1/TURNS",
        "/%ff%fe",
        "/%zz",
        "/push/../v1/turns",
        "/push/nobody",
        "/push/",
        "/push/summarizer",
        "/etc/passwd",
    ],
)
def test_no_path_leads_elsewhere(stack: Stack, path: str) -> None:
    body = plain(POSTS["/v1/turns"])
    for service_path in (path, f"{path}?x=context"):
        answer = raw(stack, service_path, [JSON, b"Content-Length: %d" % len(body)], body)
        assert answer.status == 404, answer.body


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/v1/turns/t/receipt?app=a&app=b&user_id=u", 422),
        ("/v1/turns/t/receipt?app=a&user_id=u&turn_id=x", 422),
        ("/v1/turns//receipt?app=a&user_id=u", 422),
        ("/v1/turns/%00/receipt?app=a&user_id=u", 422),
        ("/v1/turns/t/receipt?app=%00&user_id=u", 422),
        ("/v1/turns/t/receipt?app=a&user_id=u&deadline_ms=1e3", 422),
        ("/v1/turns/t/receipt?app=a&user_id=u&nobody=1", 422),
        ("/v1/turns/..%2f..%2fx/receipt?app=a&user_id=u", 404),
        ("/v1/turns/%27%20OR%201=1/receipt?app=a&user_id=u", 404),
        (f"/v1/turns/{'x' * 300}/receipt?app=a&user_id=u", 422),
        ("/v1/turns/receipt?app=a&user_id=u", 404),
    ],
)
def test_a_receipt_is_given_of_nothing_but_a_turn(stack: Stack, path: str, refused: int) -> None:
    answer = stack.http["context"].get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (refused, "application/problem+json")


@pytest.mark.parametrize("host", [b"[", b"]:80", b"a b", b"", b"x:99999999", b"\xff", b"x/../y?z#"])
def test_a_host_header_that_is_no_host_does_no_harm(stack: Stack, host: bytes) -> None:
    for path in ("/v1/context", "/v1/search"):
        body = plain(POSTS[path])
        answer = raw(stack, path, [JSON, b"Host: " + host, b"Content-Length: %d" % len(body)], body)
        assert answer.status in (200, 400)
    cut_off = [b"Host: " + host, b"Content-Length: 99"]
    assert raw(stack, "/push/turn-ingest", cut_off, b"{", half=True).status in (0, 400, 422)


@pytest.mark.parametrize(
    "headers",
    [
        [b"ce-specversion: 1.0"],
        [*BINARY[:3]],
        [*BINARY[:1], b"ce-id: ", *BINARY[2:]],
        [*BINARY[:3], b"ce-type: somebody.elses"],
        [b"ce-specversion: 9.9", *BINARY[1:]],
        [*BINARY[:1], b"ce-id: a\x01b", *BINARY[2:]],
        [*BINARY[:1], b"ce-id: a\x00b", *BINARY[2:]],
        [*BINARY[:1], b"ce-id: a\rb", *BINARY[2:]],
        [b"Content-Type: application/cloudevents-batch+json"],
    ],
    ids=str,
)
def test_a_broken_envelope_is_refused(stack: Stack, headers: list[bytes]) -> None:
    body = plain(POSTS["/v1/turns"])
    head = [*headers, b"Content-Length: %d" % len(body)]
    announced = any(line.lower().startswith(b"content-type") for line in headers)
    answer = raw(stack, "/v1/turns", head if announced else [JSON, *head], body)
    assert answer.status in (400, 422), answer
