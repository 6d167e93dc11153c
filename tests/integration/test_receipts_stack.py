"""On a whole stack: a frozen worker turns the status red by name, and receipts tell what waits and why."""

# The generated client leaves its `retry` and `request` arguments untyped.
# pyright: reportUnknownMemberType=false

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.pubsub_v1 import PubsubMessage

from lamina.api import Receipt
from lamina.client import LaminaClient, TurnPublisher
from lamina.errors import NotFound
from lamina.pubsub.clients import publisher_client
from lamina_services.local.polling import until
from lamina_services.local.pubsub import Emulator
from lamina_services.local.stack import Stack
from tests.integration.test_local_stack import ISOLATED


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("stack")
    async with Stack(home, env=ISOLATED, preferred_ports=False) as running:
        yield running


async def lamina(stack: Stack, *words: str) -> tuple[int | None, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAMINA_")}
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lamina_services.cli.main", *words),
        env={**kept, "LAMINA_HOME": str(stack.home.root), "LAMINA_STATUS_STALLED_S": "3"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await command.communicate()
    assert printed, said
    return command.returncode, json.loads(printed) if "--json" in words else printed.decode()


async def lights(stack: Stack) -> tuple[int | None, dict[str, str]]:
    code, parts = await lamina(stack, "status", "--json")
    return code, {part["name"]: part["light"] for part in parts}


async def receipt_when(stack: Stack, turn_id: str, **wanted: str) -> Receipt:
    """The turn's receipt, once these stages are in these states."""
    found: list[Receipt] = []

    async with LaminaClient(stack.state.context_url, timeout_s=30) as memory:

        async def so() -> bool:
            try:
                receipt = await memory.receipt(app="demo", user_id="ana", turn_id=turn_id, session_id="s1")
            except NotFound:
                return False
            found[:] = [receipt]
            states = {stage.stage: stage.state for stage in receipt.stages}
            return wanted.items() <= states.items()

        await until(so, timeout_s=60, what=f"{turn_id}: {wanted}", every_s=0.1, why=lambda: repr(found))
    return found[0]


async def publish(stack: Stack, turn_id: str) -> None:
    async with TurnPublisher.connect(stack.state.project, emulator=stack.state.pubsub) as turns:
        await turns.publish(
            {
                "app": "demo",
                "user_id": "ana",
                "session_id": "s1",
                "turn_id": turn_id,
                "user": "I prefer dark mode.",
            }
        )


async def test_a_turn_that_is_through_has_a_receipt_of_every_stage(stack: Stack) -> None:
    await publish(stack, "through")
    done = {"accepted": "done", "published": "done", "extracted": "done", "searchable by vector": "done"}
    receipt = await receipt_when(stack, "through", **done, summarised="waiting")
    assert {stage.stage: stage.count for stage in receipt.stages}["extracted"] == 1
    assert all(stage.at for stage in receipt.stages if stage.state == "done")
    assert receipt.parked == ()
    code, parts = await lights(stack)
    assert (code, set(parts.values())) == (0, {"ok"})
    code, printed = await lamina(stack, "trace", "through", "--user", "ana")
    assert code == 0
    assert "✓ done" in printed


async def test_a_frozen_worker_turns_the_status_red_and_the_receipt_says_what_waits(stack: Stack) -> None:
    worker = stack.child("entity-extractor").identity
    assert worker is not None
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        await publish(stack, "held")
        others = {"published": "done", "embedded": "done"}
        receipt = await receipt_when(stack, "held", **others, extracted="waiting")
        assert receipt.degraded == ()

        async def red() -> bool:
            code, parts = await lights(stack)
            return code == 1 and parts["turn.recorded → entity-extractor"] == "down"

        await until(red, timeout_s=60, what="red", every_s=0.5)
        _, parts = await lights(stack)
        assert parts["turn.recorded → episodic-embedder"] == "ok"
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    await receipt_when(stack, "held", extracted="done")

    async def well() -> bool:
        return (await lights(stack))[0] == 0

    await until(well, timeout_s=60, what="green again", every_s=0.5)


async def test_a_poison_turn_is_traced_to_where_it_is_parked_and_why(stack: Stack) -> None:
    client = publisher_client(stack.state.pubsub)
    topic = f"projects/{stack.state.project}/topics/turns"
    who = {"app": "demo", "user_id": "ana", "session_id": "s1", "turn_id": "poison"}
    poison = json.dumps({**who, "events": "none"}).encode()
    await client.publish(topic=topic, messages=[PubsubMessage(data=poison)])
    await client.transport.close()
    receipt = await receipt_when(stack, "poison", accepted="parked")
    [letter] = receipt.parked
    assert (letter.subscription, letter.error) == ("turn-ingest", "InvalidEvent")
    assert "events" in letter.reason
    code, traced = await lamina(stack, "trace", "poison", "--user", "ana", "--json")
    assert (code, traced["parked"][0]["error"]) == (0, "InvalidEvent")
    code, printed = await lamina(stack, "trace", "poison", "--user", "ana")
    assert "✗ parked" in printed
    assert "InvalidEvent" in printed

    async def told() -> bool:
        _, parts = await lamina(stack, "status", "--json")
        letters = [part for part in parts if part["name"] == "dead letters of turn-ingest"]
        return bool(letters) and letters[0]["facts"] == {
            "subscription": "turn-ingest",
            "queued": 1,
            "by_error": {"InvalidEvent": 1},
        }

    await until(told, timeout_s=60, what="the status to tell", every_s=0.5)


async def test_a_frozen_emulator_is_down_and_nobody_knows_how_the_stages_are(stack: Stack) -> None:
    emulator = stack.child("pubsub").identity
    assert emulator is not None
    os.kill(emulator.pid, signal.SIGSTOP)
    try:

        async def red() -> bool:
            code, parts = await lights(stack)
            return (code, parts["pubsub"], parts["turn.recorded → summarizer"]) == (1, "down", "unknown")

        await until(red, timeout_s=60, what="red", every_s=0.5)
    finally:
        os.kill(emulator.pid, signal.SIGCONT)


async def test_an_emulator_that_keeps_no_counters_leaves_the_stages_unknown_and_not_well(
    tmp_path: Path,
) -> None:
    async with Emulator() as foreign:
        env = {**ISOLATED, "PUBSUB_EMULATOR_HOST": foreign.endpoint}
        async with Stack(tmp_path, env=env, preferred_ports=False) as stack:
            code, parts = await lights(stack)
    stages = {light for name, light in parts.items() if "→" in name}
    assert (code, stages) == (0, {"unknown"})
    assert parts["pubsub"] == "ok"
