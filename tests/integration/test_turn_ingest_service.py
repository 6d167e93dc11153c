"""turn-ingest as it is deployed: under functions-framework, with a real Valkey and topics that speak gRPC."""

# The generated Pub/Sub client leaves its `retry` and `request` arguments untyped.
# pyright: reportUnknownMemberType=false

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lamina.envelope import encode
from lamina.events import TurnPublished, TurnRecorded
from lamina.model import SessionKey, Turn
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import connect
from tests.contract.pubsub_servers import OwnServer, World
from tests.fixtures_valkey import valkey_url

__all__ = ["valkey_url"]

PROJECT = "ingest-test"
SESSION = SessionKey(app="shop", user_id="ana", session_id="over-http")
TURN: dict[str, Any] = {
    **SESSION.model_dump(),
    "turn_id": "t1",
    "occurred_at": "2026-03-01T09:00:00Z",
    "events": [{"author": "user", "content": {"role": "user", "parts": [{"text": "NUL \x00 and \ud800"}]}}],
}


@pytest.fixture(scope="module")
def topics() -> Iterator[World]:
    server = OwnServer()
    world = World(server.endpoint)
    for name in ("turns", "turn.recorded", "turn-ingest.dead"):
        topic = f"projects/{PROJECT}/topics/{name}"
        world.topics.create_topic(name=topic)
        subscription = f"projects/{PROJECT}/subscriptions/{name}.seen"
        world.subscriptions.create_subscription(request={"name": subscription, "topic": topic})
    yield world
    world.close()
    server.stop()


@pytest.fixture(scope="module")
def service(topics: World, valkey_url: str) -> Iterator[httpx.Client]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = subprocess.Popen(  # noqa: S603 - our own module, on a socket of our own
            [sys.executable, "-m", "lamina_services.local.serve", "turn-ingest", str(listener.fileno())],
            env={
                **os.environ,
                "GOOGLE_CLOUD_PROJECT": PROJECT,
                "PUBSUB_EMULATOR_HOST": topics.endpoint,
                "LAMINA_VALKEY_URL": valkey_url,
            },
            pass_fds=[listener.fileno()],
        )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        wait_until_healthy(client)
        yield client
    process.terminate()
    process.wait(10)


def wait_until_healthy(client: httpx.Client) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if client.get("/healthz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "the service does not come up"
        time.sleep(0.05)


def seen(topics: World, name: str) -> list[Any]:
    received = topics.pull(f"projects/{PROJECT}/subscriptions/{name}.seen", 1)
    topics.subscriptions.acknowledge(
        subscription=f"projects/{PROJECT}/subscriptions/{name}.seen",
        ack_ids=[each.ack_id for each in received],
    )
    return [each.message for each in received]


async def buffered(url: str) -> tuple[Turn, ...]:
    buffer = ValkeyBuffer(connect(url), ttl_s=600)
    view = await buffer.read(SESSION)
    await buffer.aclose()
    return view.turns


def test_a_posted_turn_is_in_the_buffer_and_on_the_topic(
    service: httpx.Client, topics: World, valkey_url: str
) -> None:
    answer = service.post("/v1/turns", content=json.dumps(TURN))
    assert (answer.status_code, answer.json()) == (200, {"turn_id": "t1", "duplicate": False})
    turn = Turn.model_validate(TURN)
    [message] = seen(topics, "turn.recorded")
    expected = encode(TurnRecorded(turn=turn))
    assert (message.data, dict(message.attributes)) == (expected.data, expected.attributes)
    assert asyncio.run(buffered(valkey_url)) == (turn,)


def test_posting_it_again_is_accepted_as_a_duplicate(service: httpx.Client, topics: World) -> None:
    turn = {**TURN, "session_id": "twice"}
    assert [service.post("/v1/turns", content=json.dumps(turn)).json()["duplicate"] for _ in range(2)] == [
        False,
        True,
    ]
    assert len(seen(topics, "turn.recorded") + seen(topics, "turn.recorded")) == 2


def test_a_turn_that_breaks_its_contract_is_answered_with_its_problems(service: httpx.Client) -> None:
    answer = service.post("/v1/turns", json={**SESSION.model_dump(), "events": [{"content": {"parts": 3}}]})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert "events.0: content.parts: must be a list or null" in answer.json()["problems"]


def test_a_turn_too_large_to_publish_is_answered_413(service: httpx.Client) -> None:
    part = {"inline_data": {"mime_type": "image/png", "data": "A" * 10_000_000}}
    huge = {**TURN, "session_id": "huge", "events": [{"author": "user", "content": {"parts": [part]}}]}
    assert service.post("/v1/turns", json=huge).status_code == 413


def test_a_push_is_acknowledged_once_the_turn_is_published(service: httpx.Client, topics: World) -> None:
    turn = Turn.model_validate({**TURN, "session_id": "pushed"})
    message = encode(TurnPublished(turn=turn))
    unwrapped = service.post("/push/turn-ingest", content=message.data, headers=message.attributes)
    assert unwrapped.status_code == 204
    wrapped = {
        "message": {"data": base64.b64encode(message.data).decode(), "attributes": message.attributes},
        "subscription": "s",
    }
    assert service.post("/push/turn-ingest", json=wrapped).status_code == 204
    for recorded in [*seen(topics, "turn.recorded"), *seen(topics, "turn.recorded")]:
        assert json.loads(recorded.data) == {"turn": turn.to_json()}


def test_a_push_that_can_never_succeed_is_parked_with_its_reason(
    service: httpx.Client, topics: World
) -> None:
    answer = service.post("/push/turn-ingest", content=b"{}", headers={"content-type": "application/json"})
    assert answer.status_code == 204
    [parked] = seen(topics, "turn-ingest.dead")
    assert parked.data == b"{}"
    assert "app: Field required" in parked.attributes["lamina-reason"]


def test_any_other_path_is_not_found(service: httpx.Client) -> None:
    assert service.get("/v1/turn").status_code == 404
    assert service.post("/v1/nothing", json={}).status_code == 404
