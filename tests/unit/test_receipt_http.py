"""Receipts over HTTP, asked with the client: found, refused, degraded, and never another user's."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lamina.client import LaminaClient
from lamina.errors import DependencyUnavailable, InvalidEvent, NotFound
from lamina.model import SessionKey
from lamina.ports import BufferTrace, Evidence, IndexedLetter
from lamina.settings import Settings
from lamina.testing.buffer import InMemoryBuffer
from lamina.testing.receipts import InMemoryReceipts
from lamina.wiring import Wiring
from lamina_services.context.main import answer
from tests.builders import a_session, a_turn

identifiers = st.text(
    st.characters(codec="utf-8", exclude_characters="\x7f", min_codepoint=0x20), min_size=1, max_size=40
)
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LETTER = IndexedLetter(
    app="shop",
    user_id="ana",
    session_id="s1",
    turn_id="t1",
    subscription="turn-ingest",
    error="InvalidEvent",
    reason="events: Field required",
    failures=1,
    service="turn-ingest",
    parked_at=AT,
)


class FrozenBuffer(InMemoryBuffer):
    async def trace(self, session: SessionKey, turn_id: str) -> BufferTrace | None:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class Service:
    """The context function behind its client, its dependencies in memory."""

    def __init__(self, buffer: InMemoryBuffer | None = None) -> None:
        self.buffer = buffer or InMemoryBuffer()
        self.receipts = InMemoryReceipts()
        parts = Wiring(Settings.model_construct(processed_days=30))
        parts.buffer = self.buffer
        parts.receipts = self.receipts

        async def run(request: Request) -> Response:
            return await answer(request, lambda: parts)

        app = Starlette(routes=[Route("/{path:path}", run, methods=["GET", "POST"])])
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://context")
        self.client = LaminaClient("http://context", self.http)


@pytest.fixture
async def service() -> AsyncGenerator[Service]:
    made = Service()
    yield made
    await made.http.aclose()


WHO: dict[str, Any] = {"app": "shop", "user_id": "ana", "turn_id": "t1"}


async def test_a_turn_in_the_buffer_has_a_receipt_where_its_session_is_named(service: Service) -> None:
    await service.buffer.append(a_turn("ana"))
    receipt = await service.client.receipt(**WHO, session_id="s1")
    assert (receipt.session_id, receipt.turn_id, receipt.degraded) == ("s1", "t1", ())
    assert {each.stage: each.state for each in receipt.stages}["accepted"] == "done"
    with pytest.raises(NotFound, match="session_id"):
        await service.client.receipt(**WHO)


async def test_a_turn_that_the_database_knows_is_found_without_its_session(service: Service) -> None:
    service.receipts.known[a_session("ana"), "t1"] = Evidence(recorded_at=AT)
    assert (await service.client.receipt(**WHO)).session_id == "s1"


async def test_a_turn_that_was_refused_at_the_door_says_why(service: Service) -> None:
    await service.receipts.index.record(LETTER)
    [parked] = (await service.client.receipt(**WHO)).parked
    assert (parked.subscription, parked.error, parked.reason) == (
        "turn-ingest",
        "InvalidEvent",
        "events: Field required",
    )


async def test_a_parked_turn_that_named_no_session_is_found_with_and_without_one(service: Service) -> None:
    await service.receipts.index.record(replace(LETTER, session_id=""))
    found = await service.client.receipt(**WHO)
    assert (found.session_id, len(found.parked)) == ("", 1)
    assert len((await service.client.receipt(**WHO, session_id="s1")).parked) == 1


async def test_an_id_that_two_sessions_share_needs_the_session(service: Service) -> None:
    for session in ("s1", "s2"):
        service.receipts.known[a_session("ana", session), "t1"] = Evidence(recorded_at=AT)
    with pytest.raises(InvalidEvent, match="2 sessions"):
        await service.client.receipt(**WHO)
    assert (await service.client.receipt(**WHO, session_id="s2")).session_id == "s2"


@pytest.mark.parametrize(
    "who", [{"user_id": "bo"}, {"app": "other"}, {"turn_id": "t2"}, {"session_id": "s2"}]
)
async def test_anyone_elses_turn_is_not_found(service: Service, who: dict[str, Any]) -> None:
    await service.buffer.append(a_turn("ana"))
    service.receipts.known[a_session("ana"), "t1"] = Evidence(recorded_at=AT)
    asked: dict[str, Any] = {**WHO, "session_id": "s1", **who}
    with pytest.raises(NotFound):
        await service.client.receipt(**asked)


async def test_what_is_down_is_named_and_what_the_other_knows_is_told(service: Service) -> None:
    await service.buffer.append(a_turn("ana"))
    service.receipts.known[a_session("ana"), "t1"] = Evidence(recorded_at=AT)
    service.buffer.down = True
    assert (await service.client.receipt(**WHO, session_id="s1")).degraded == ("buffer",)
    service.buffer.down, service.receipts.down = False, True
    assert (await service.client.receipt(**WHO, session_id="s1")).degraded == ("memory",)
    with pytest.raises(DependencyUnavailable, match="session"):
        await service.client.receipt(**WHO)
    service.buffer.down = True
    with pytest.raises(DependencyUnavailable):
        await service.client.receipt(**WHO, session_id="s1")


@pytest.mark.parametrize("down", ["buffer", "receipts"])
async def test_an_unknown_turn_is_no_404_while_somebody_who_may_know_it_is_down(
    service: Service, down: str
) -> None:
    getattr(service, down).down = True
    with pytest.raises(DependencyUnavailable, match="may know"):
        await service.client.receipt(**WHO, session_id="s1")


async def test_a_frozen_buffer_costs_its_share_of_the_deadline_and_no_more() -> None:
    service = Service(FrozenBuffer())
    service.receipts.known[a_session("ana"), "t1"] = Evidence(recorded_at=AT)
    receipt = await asyncio.wait_for(
        service.client.receipt(**WHO, session_id="s1", deadline_ms=200), timeout=10
    )
    assert receipt.degraded == ("buffer",)
    await service.http.aclose()


@pytest.mark.parametrize(
    "query",
    [
        "",
        "app=shop",
        "app=shop&user_id=",
        "app=shop&user_id=%00",
        "app=shop&user_id=ana&turn_id=t2",
        "app=shop&user_id=ana&typo=1",
        "app=shop&user_id=ana&deadline_ms=1",
        "app=shop&user_id=ana&deadline_ms=x",
        "app=shop&user_id=%FF&session_id=" + "x" * 300,
    ],
)
async def test_a_bad_query_is_the_callers_problem(service: Service, query: str) -> None:
    response = await service.http.get(f"/v1/turns/t1/receipt?{query}")
    assert response.status_code == 422
    assert response.json()["problems"]


@pytest.mark.parametrize(
    "path", ["/v1/turns//receipt", "/v1/turns/%00/receipt", "/v1/turns/" + "x" * 300 + "/receipt"]
)
async def test_a_bad_turn_id_is_the_callers_problem(service: Service, path: str) -> None:
    assert (await service.http.get(f"{path}?app=shop&user_id=ana")).status_code == 422


async def test_other_paths_and_methods_are_refused(service: Service) -> None:
    assert (await service.http.post("/v1/turns/t1/receipt")).status_code == 405
    for path in ("/v1/turns/t1", "/v1/turns/receipt", "/v1/turns/t1/receipts"):
        assert (await service.http.get(path)).status_code == 404


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turn_id=identifiers)
@example(turn_id="a/receipt")
@example(turn_id="/")
@example(turn_id=".")
@example(turn_id="..")
@example(turn_id="..%2F?x=1#y")
async def test_whatever_a_turn_is_called_its_receipt_can_be_asked_for(service: Service, turn_id: str) -> None:
    service.receipts.known[a_session("ana"), turn_id] = Evidence(recorded_at=AT)
    receipt = await service.client.receipt(app="shop", user_id="ana", turn_id=turn_id)
    assert receipt.turn_id == turn_id
