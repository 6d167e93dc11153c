"""The demo's story, in every language, on one running stack: what memory holds, and what it keeps apart."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from lamina_services.cli.demo.expectations import checks
from lamina_services.cli.demo.player import ENVIRONMENT, play
from lamina_services.cli.demo.story import LANGUAGES, load_story
from lamina_services.local.stack import Stack


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stack]:
    home = tmp_path_factory.mktemp("demo")
    async with Stack(home, env={**ENVIRONMENT, "LAMINA_MODEL": "offline"}, preferred_ports=False) as running:
        yield running


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_story_leaves_the_memory_that_it_must(stack: Stack, language: str) -> None:
    played = await play(load_story(language), stack.state, timeout_s=120)
    failed = [f"{check.what} (found: {check.found})" for check in checks(played) if not check.holds]
    assert not failed


async def test_the_story_told_again_changes_nothing(stack: Stack) -> None:
    story = load_story("en")
    once = await play(story, stack.state, timeout_s=120)
    again = await play(story, stack.state, timeout_s=120)
    assert again.tiers == once.tiers
    assert all(check.holds for check in checks(again))


def test_every_language_tells_the_same_story() -> None:
    shapes = {
        tuple((s.session_id, s.user_id, tuple(t.get("project_id") for t in s.turns)) for s in story.sessions)
        for story in map(load_story, LANGUAGES)
    }
    assert len(shapes) == 1
    assert len({tuple(s.scope for s in load_story(each).statements) for each in LANGUAGES}) == 1


async def test_the_command_shows_every_tier_and_succeeds(tmp_path: Path) -> None:
    svg = tmp_path / "demo.svg"
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lamina_services.cli.main", "demo", "--svg", str(svg)),
        env={**os.environ, "LAMINA_MODEL": "offline", "COLUMNS": "120"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, progress = (text.decode() for text in await asyncio.wait_for(command.communicate(), 180))
    assert command.returncode == 0, progress[-2000:]
    for title in (
        "1 Buffer",
        "2 Summary",
        "3 Entities",
        "4 Episodes",
        "The agent's prompt gets",
        "Expectations",
    ):
        assert title in printed
    assert "✗" not in printed
    assert svg.read_text("utf-8").startswith("<svg")
