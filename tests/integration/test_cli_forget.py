"""`lamina forget` and `lamina export` as an operator runs them, with the rights of the operator's role."""

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.builders import APP
from tests.contract.dead_letter_yard import PROJECT
from tests.fixtures_valkey import valkey_url
from tests.integration.forgetting_world import MemoryWorld, a_name, pubsub, words_of, world

__all__ = ["pubsub", "valkey_url", "world"]


async def lamina(world: MemoryWorld, tmp_path: Path, *words: str, **more: str) -> tuple[int | None, str, str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LAMINA_")},
        "LAMINA_HOME": str(tmp_path),
        "LAMINA_DATABASE_URL": world.test_database.service("lamina_operator"),
        "LAMINA_VALKEY_URL": world.valkey_url,
        "LAMINA_TOPIC_PREFIX": world.yard.prefix,
        "PUBSUB_EMULATOR_HOST": world.yard.world.endpoint,
        "GOOGLE_CLOUD_PROJECT": PROJECT,
        **more,
    }
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lamina_services.cli.main", *words, "--app", APP),
        env={name: value for name, value in environment.items() if value},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await command.communicate()
    return command.returncode, printed.decode(), said.decode()


async def test_nothing_goes_without_yes_and_everything_with_it(world: MemoryWorld, tmp_path: Path) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    before = await world.rows(ana)
    command = ("forget", "--user", ana, "--json")

    code, printed, said = await lamina(world, tmp_path, *command)
    assert (code, said) == (0, "")
    would: dict[str, Any] = json.loads(printed)
    assert (would["acted"], would["scope"], would["database"]["turns"]) == (False, "user", len(turns))
    assert await world.rows(ana) == before

    _, printed, _ = await lamina(world, tmp_path, *command, "--yes")
    did: dict[str, Any] = json.loads(printed)
    assert (did["acted"], did["database"]) == (True, would["database"])
    assert did["dead_letters"] == {"entity-extractor": 4}
    assert await world.words(words_of(turns)) == set()

    _, printed, _ = await lamina(world, tmp_path, "forget", "--user", ana, "--yes")
    assert "nothing is left" in printed


async def test_a_receipt_for_people_names_places_and_what_stays(world: MemoryWorld, tmp_path: Path) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    code, printed, _ = await lamina(world, tmp_path, "forget", "--user", ana, "--project", "shop")
    assert code == 0
    for words in ("Would be forgotten", "database", "dead letters", "name no project stay", "--yes does it"):
        assert words in " ".join(printed.split())
    [view] = (await world.entities.known(turns[0]))[:1]
    _, printed, _ = await lamina(world, tmp_path, "forget", "--user", ana, "--entity", str(view.entity_id))
    assert "turns that said so stay" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("words", "more", "complaint"),
    [
        (("--session", "s1", "--project", "p"), {}, "exclude one another"),
        (("--entity", str(uuid.uuid4())), {}, "has no entity"),
        ((), {"LAMINA_VALKEY_URL": ""}, "no stack runs"),
        (("--cloud",), {"LAMINA_VALKEY_URL": "", "GOOGLE_CLOUD_PROJECT": ""}, "LAMINA_VALKEY_URL"),
        (("--before", "soon"), {}, "--before"),
        (("--before", "2999-01-01"), {}, "lies ahead"),
    ],
)
async def test_a_mistake_is_one_line(
    world: MemoryWorld, tmp_path: Path, words: tuple[str, ...], more: dict[str, str], complaint: str
) -> None:
    code, printed, said = await lamina(world, tmp_path, "forget", "--user", "ana", *words, **more)
    assert code in (1, 2)
    assert printed == ""
    assert complaint in said
    assert said.count("\n") == 1


async def test_an_export_goes_to_a_new_private_file_or_to_stdout(world: MemoryWorld, tmp_path: Path) -> None:
    ana = a_name()
    turns = await world.fill(ana)
    out = tmp_path / "ana.jsonl"
    code, printed, said = await lamina(world, tmp_path, "export", "--user", ana, "--out", str(out))
    assert (code, printed) == (0, "")
    assert "objects are in" in said
    assert out.stat().st_mode & 0o077 == 0
    lines = [json.loads(line) for line in out.read_text("ascii").splitlines()]
    assert sum(line["kind"] == "turn" for line in lines) == len(turns)
    assert lines[-1]["kind"] == "end"

    code, _, said = await lamina(world, tmp_path, "export", "--user", ana, "--out", str(out))
    assert (code, "exists already" in said) == (1, True)
    _, printed, _ = await lamina(world, tmp_path, "export", "--user", ana)
    assert printed == out.read_text("ascii")
