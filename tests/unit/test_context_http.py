"""The context function's HTTP edge: every bad request is a problem document, never a 5xx."""

import asyncio
import json
from collections.abc import AsyncGenerator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lamina.errors import ConfigurationError
from lamina.model import Turn
from lamina.models.tokens import EstimatedTokens
from lamina.ports import Vector
from lamina.settings import Settings
from lamina.testing.buffer import InMemoryBuffer
from lamina.testing.reader import InMemoryReader
from lamina.web import MAX_QUESTION_BYTES
from lamina.wiring import Wiring
from lamina_services.context.main import answer

WHO = {"app": "shop", "user_id": "ana", "session_id": "s1"}
PART = {"text": "\x00 \ud800", "\ud800": 1}
ODD = {"author": "user", "content": {"role": "user", "parts": [PART]}}


class NoEmbedder:
    name = "none"

    def __init__(self) -> None:
        self.asked_to_warm = 0
        self.warmed = asyncio.Event()

    async def warm(self) -> None:
        self.asked_to_warm += 1
        self.warmed.set()
        raise ConfigurationError("no model here")

    async def documents(self, texts: object) -> list[Vector]:
        raise NotImplementedError

    async def query(self, text: str) -> Vector:
        return [0.0]


class Service:
    """The function on an HTTP client, its dependencies in memory."""

    def __init__(self) -> None:
        self.buffer = InMemoryBuffer()
        self.reader = InMemoryReader()
        self.parts = Wiring(Settings.model_construct())
        self.parts.buffer = self.buffer
        self.parts.reader = self.reader
        self.embedder = NoEmbedder()
        self.parts.embedder = self.embedder
        self.parts.tokens = EstimatedTokens()

        async def run(request: Request) -> Response:
            return await answer(request, lambda: self.parts)

        everything = Starlette(routes=[Route("/{path:path}", run, methods=["GET", "POST", "PUT"])])
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=everything), base_url="http://context"
        )

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> httpx.Response:
        return await self.http.post(path, content=body, headers={"content-type": kind})


@pytest.fixture
async def service() -> AsyncGenerator[Service]:
    made = Service()
    yield made
    await made.http.aclose()


def body(**fields: object) -> bytes:
    return json.dumps({**WHO, **fields}).encode()


async def test_a_context_is_answered(service: Service) -> None:
    response = await service.post("/v1/context", body(query="anything"))
    assert response.status_code == 200
    assert response.json()["degraded"] == []


async def test_events_come_out_as_they_went_in(service: Service) -> None:
    turn = {**WHO, "turn_id": "t1", "occurred_at": "2026-01-05T10:00:00Z", "events": [ODD]}
    await service.buffer.append(Turn.model_validate(turn))
    response = await service.post("/v1/context", body())
    assert json.loads(response.content)["recent"][0]["events"] == [ODD]
    asked = json.dumps({"app": "shop", "user_id": "ana", "handle": "lamina:s1/t1/0/0"}).encode()
    response = await service.post("/v1/fetch", asked)
    assert json.loads(response.content)["part"] == PART


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"null", 422),
        (b"\xff\xfe", 422),
        (b"[" * 100_000, 422),
        (b'{"a":' * 900 + b"1" + b"}" * 900, 422),
        (b'{"app": NaN}', 422),
        (body(query=5), 422),
        (body(typo="x"), 422),
        (body(query="\ud800"), 422),
        (body(session_id="\x00"), 422),
        (body(token_budget=1), 422),
        (body(deadline_ms=10**400), 422),
        (b'{"app": "' + b"x" * MAX_QUESTION_BYTES + b'"}', 413),
    ],
    ids=range(15),
)
async def test_a_bad_body_is_the_callers_problem(service: Service, bad: bytes, status: int) -> None:
    response = await service.post("/v1/context", bad)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["problems"]


async def test_the_first_health_check_loads_the_model_once_and_is_answered_whatever_comes_of_it(
    service: Service,
) -> None:
    for _ in range(2):
        assert (await service.http.get("/healthz")).status_code in (200, 503)
        await asyncio.wait_for(service.embedder.warmed.wait(), 10)
    assert service.embedder.asked_to_warm == 1


async def test_a_health_check_of_a_service_without_settings_says_what_is_amiss() -> None:
    def unusable() -> Wiring:
        raise ConfigurationError("LAMINA_TIER: must be local or cloud")

    check = Request({"type": "http", "method": "GET", "path": "/healthz", "headers": []})
    assert (await answer(check, unusable)).status_code == 503


async def test_a_nul_in_a_question_is_harmless(service: Service) -> None:
    assert (await service.post("/v1/context", body(query="a\x00b"))).status_code == 200


async def test_only_json_is_taken(service: Service) -> None:
    assert (await service.post("/v1/search", body(), "application/x-www-form-urlencoded")).status_code == 415
    assert (await service.post("/v1/context", body(), "application/JSON; charset=utf-8")).status_code == 200


async def test_other_paths_and_methods_are_refused(service: Service) -> None:
    assert (await service.post("/v2/context", body())).status_code == 404
    assert (await service.http.get("/v1/context")).status_code == 405


async def test_503_only_where_nothing_at_all_can_be_answered(service: Service) -> None:
    service.buffer.down = True
    response = await service.post("/v1/context", body())
    assert (response.status_code, response.json()["degraded"]) == (200, ["buffer"])
    service.reader.down = True
    assert (await service.post("/v1/context", body())).status_code == 503
