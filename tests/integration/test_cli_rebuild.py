"""`lamina rebuild` as an operator runs it: killed and run again, and on a local stack."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lamina.client import LaminaClient, TurnPublisher
from lamina_services.local.polling import until
from lamina_services.local.stack import Stack
from tests.builders import APP, a_turn
from tests.fixtures_postgres import TestDatabase
from tests.fixtures_valkey import valkey_url
from tests.integration.rebuild_world import World, story, world

__all__ = ["valkey_url", "world"]

ROOT = Path(__file__).parents[2]
MODELS = "tests.integration.rebuild_models"
ISOLATED = {"PUBSUB_EMULATOR_HOST": "", "LAMINA_TOPIC_PREFIX": "", "LAMINA_MODEL": "offline"}


async def start(env: Mapping[str, str], *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lamina_services.cli.main", "rebuild", "--app", APP, *words),
        env={**os.environ, "PYTHONPATH": str(ROOT), "LAMINA_MODEL": f"{MODELS}:loud", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def lamina(env: Mapping[str, str], *words: str) -> tuple[int | None, Any, str]:
    command = await start(env, *words, "--json")
    printed, said = await command.communicate()
    return command.returncode, json.loads(printed) if printed else None, said.decode()


async def test_killed_it_goes_on_where_it_was(
    world: World, memory_database: TestDatabase, valkey_url: str, tmp_path: Path
) -> None:
    user = await world.a_user_with_memory()
    before = await world.rows(user)
    asked = tmp_path / "asked"
    env = {
        "LAMINA_EMBEDDER": f"{MODELS}:hashed",
        "LAMINA_DATABASE_URL": memory_database.service("lamina_operator"),
        "LAMINA_VALKEY_URL": valkey_url,
        "GOOGLE_CLOUD_PROJECT": "a-project",
        "LAMINA_CLOUD": "1",
        "LAMINA_STAGE": "entities",
        "LAMINA_USER": user,
        "TEST_ASKED": str(asked),
    }
    killed = await start({**env, "TEST_ANSWERS": "3"})

    async def hangs() -> bool:
        assert killed.returncode is None
        return asked.exists() and len(asked.read_text().split()) == 4

    await until(hangs, timeout_s=60, what="the fourth turn")
    killed.kill()
    await killed.communicate()
    assert await world.rows(user) == before

    code, ready, said = await lamina(env)
    assert (code, ready["state"], ready["counts"]["turns"]) == (0, "ready", 8), said
    assert asked.read_text().split() == ["t0", "t1", "t2", "t3", *(f"t{number}" for number in range(3, 8))]
    assert await world.rows(user) == before
    code, discarded, _ = await lamina(env, "--discard")
    assert (code, discarded["state"]) == (0, "abandoned")
    code, _, said = await lamina(env, "--discard")
    assert (code, said) == (1, f"lamina: no rebuild of the entities of {user} is open\n")
    code, _, said = await lamina(env, "--discard", "--yes")
    assert (code, said) == (1, "lamina: --yes and --discard exclude each other\n")


async def test_on_a_local_stack_it_is_shown_first_and_then_done(tmp_path: Path) -> None:
    async with Stack(tmp_path, env=ISOLATED, preferred_ports=False) as stack:
        state = stack.state
        async with TurnPublisher.connect(state.project, emulator=state.pubsub) as turns:
            for turn in (*story("ana"), *(a_turn("ana", n, session="s2") for n in range(20, 32))):
                await turns.publish(turn)
        env = {**ISOLATED, "LAMINA_HOME": str(tmp_path), "LAMINA_MODEL": f"{MODELS}:loud"}

        async with LaminaClient(state.context_url, timeout_s=30) as memory:

            async def stated() -> list[str]:
                answer = await memory.search(app=APP, user_id="ana", query="Fridays", project_id="shop", k=50)
                return [entity.text for entity in answer.entities]

            async def summary() -> str:
                answer = await memory.context(app=APP, user_id="ana", session_id="s2", query="mode")
                return answer.summary.text if answer.summary else ""

            async def remembered() -> bool:
                return any("Fridays" in text for text in await stated()) and bool(await summary())

            await until(remembered, timeout_s=60, what="the memory", every_s=0.2)
            words = ("--user", "ana", "--stage")
            code, ready, said = await lamina(env, *words, "entities")
            assert (code, ready["state"]) == (0, "ready"), said
            assert any("FRIDAYS" in change["after"] for change in ready["changes"])
            assert not any("FRIDAYS" in text for text in await stated())
            code, swapped, said = await lamina(env, *words, "entities", "--yes")
            assert (code, swapped["state"]) == (0, "swapped"), said
            assert swapped["rebuild_id"] == ready["rebuild_id"]
            assert any("FRIDAYS" in text for text in await stated())

            code, swapped, said = await lamina(env, *words, "summaries", "--yes")
            assert (code, swapped["state"]) == (0, "swapped"), said
            assert "t20!" in await summary()

            code, same, said = await lamina({**env, "LAMINA_MODEL": "offline"}, *words, "episodes", "--yes")
            assert (code, same["changes"], same["counts"]["vectors_made"]) == (0, [], 0), said

        shown = await start({**env, "LAMINA_MODEL": "offline"}, *words, "entities")
        printed, _ = await shown.communicate()
        assert "run it with --yes to use the new memory" in " ".join(printed.decode().split())
        assert "changed" in printed.decode()
