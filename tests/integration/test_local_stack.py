"""The local stack: everything starts, nothing is left behind, and a killed one comes back with its data."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from lamina.client import LaminaClient, TurnPublisher
from lamina.errors import ConfigurationError, DependencyUnavailable
from lamina_services.local.home import Home, StackState
from lamina_services.local.identity import ProcessIdentity
from lamina_services.local.polling import until
from lamina_services.local.stack import Stack, check_health

ISOLATED: Mapping[str, str] = {
    "PUBSUB_EMULATOR_HOST": "",
    "LAMINA_TOPIC_PREFIX": "",
    "LAMINA_MODEL": "offline",
}
PARTS = {
    *("postgres", "valkey", "pubsub"),
    *("turn-ingest", "summarizer", "entity-extractor", "episodic-embedder", "compactor", "context"),
    "dead-letter-recorder",
}


@contextlib.asynccontextmanager
async def _up(
    home: Path, *options: str, started_by: Sequence[str] = ()
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """`lamina up` as a person runs it, ready to use; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(*started_by, sys.executable, "-m", "lamina_services.cli.main", "up", "--free-ports", *options),
        env={**os.environ, **ISOLATED, "LAMINA_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )

    async def ready() -> bool:
        if process.returncode is not None:
            assert process.stdout is not None
            raise AssertionError((await process.stdout.read()).decode())
        state = Home(home).read_state()
        return state is not None and state.supervisor.pid == process.pid and state.ready

    try:
        await until(ready, timeout_s=90, what="lamina up", every_s=0.1)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _all_gone(processes: tuple[ProcessIdentity, ...]) -> None:
    async def gone() -> bool:
        return not any(process.find() for process in processes)

    await until(gone, timeout_s=30, what="the end of every child")


async def _remember(state: StackState, text: str) -> None:
    """Publish a turn and wait until it can be found."""
    async with TurnPublisher.connect(state.project, emulator=state.pubsub) as turns:
        await turns.publish({"app": "demo", "user_id": "ana", "session_id": "s1", "user": text})
    await _recalled(state, text)


async def _recalled(state: StackState, text: str) -> None:
    async with LaminaClient(state.context_url, timeout_s=30) as memory:

        async def found() -> bool:
            answer = await memory.search(app="demo", user_id="ana", query=text)
            return any(text in episode.text for episode in answer.episodes)

        await until(found, timeout_s=60, what="the turn", every_s=0.2)


async def test_everything_starts_healthy_with_rights_of_its_own_and_nothing_stays(tmp_path: Path) -> None:
    async with Stack(tmp_path, env=ISOLATED, preferred_ports=False) as stack:
        state = stack.state
        assert {child.name for child in state.children} == PARTS
        assert tmp_path.joinpath("stack.json").stat().st_mode & 0o777 == 0o600
        assert tmp_path.joinpath("secrets.json").stat().st_mode & 0o777 == 0o600
        async with httpx.AsyncClient() as http:
            for url in state.services.values():
                assert (await check_health(http, url))[0]
        async with await psycopg.AsyncConnection.connect(state.database_url) as db:
            cursor = await db.execute(
                "SELECT usename FROM pg_stat_activity WHERE datname = 'lamina' AND usename <> 'postgres'"
            )
            logins = {str(name) for (name,) in await cursor.fetchall()}
        assert logins == {
            f"lamina_{name}_local"
            for name in (
                *("summarizer", "entity_extractor", "episodic_embedder", "compactor", "context"),
                "dead_letter_recorder",
            )
        }
        every = [psutil.Process(child.pid) for child in state.children]
        below = [child for process in every for child in process.children(recursive=True)]
    assert not any(process.is_running() for process in (*every, *below))
    assert Home(tmp_path).read_state() is None


async def test_a_service_that_crashes_comes_back_on_its_port(tmp_path: Path) -> None:
    async with Stack(tmp_path, env=ISOLATED, preferred_ports=False) as stack:
        url = stack.state.services["context"]
        before = stack.child("context").identity
        assert before is not None
        os.kill(before.pid, signal.SIGKILL)
        async with httpx.AsyncClient(timeout=30) as http:

            async def back() -> bool:
                now = stack.child("context").identity
                return now is not None and now.pid != before.pid and (await check_health(http, url))[0]

            await until(back, timeout_s=60, what="the context service")
        assert stack.child("context").identity in stack.state.children


async def test_ctrl_c_stops_every_child(tmp_path: Path) -> None:
    async with _up(tmp_path) as process:
        state = Home(tmp_path).running()
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert not any(child.find() for child in state.children)
    assert Home(tmp_path).read_state() is None


async def test_an_interrupt_also_stops_a_stack_that_a_script_started_in_the_background(
    tmp_path: Path,
) -> None:
    async with _up(tmp_path, started_by=("sh", "-c", 'trap "" INT; exec "$@"', "sh")) as process:
        state = Home(tmp_path).running()
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert not any(child.find() for child in state.children)


async def test_a_killed_stack_leaves_no_child_and_comes_back_with_its_data(tmp_path: Path) -> None:
    async with _up(tmp_path) as process:
        killed = Home(tmp_path).running()
        await _remember(killed, "The pelican sorts parcels.")
        process.kill()
        await process.wait()
        await _all_gone(killed.children)
    assert Home(tmp_path).read_state() is not None, "nobody was left to tidy up"
    # Somebody else got the process id that PostgreSQL's file names, and it is not PostgreSQL.
    tmp_path.joinpath("postgres", "postmaster.pid").write_text(f"{os.getppid()}\n/elsewhere\n", "utf-8")
    async with Stack(tmp_path, env=ISOLATED, preferred_ports=False) as stack:
        await _recalled(stack.state, "The pelican sorts parcels.")


async def test_a_second_stack_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with Stack(tmp_path, env=ISOLATED, preferred_ports=False):
        with pytest.raises(ConfigurationError, match="a stack runs under"):
            await Stack(tmp_path, env=ISOLATED, preferred_ports=False).__aenter__()


async def test_taken_ports_are_passed_over(tmp_path: Path) -> None:
    with contextlib.ExitStack() as taken:
        usual = (8701, 8706, 8710, 8711, 8712)
        for port in usual:
            listener = taken.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):  # taken by somebody else: all the better
                listener.bind(("127.0.0.1", port))
                listener.listen()
        async with Stack(tmp_path, env=ISOLATED) as stack:
            state = stack.state
            urls = (*state.services.values(), state.pubsub, state.database_url, state.valkey_url)
            assert not any(f":{port}" in url for url in urls for port in usual)


async def test_a_stack_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    tmp_path.joinpath("postgres").mkdir()
    tmp_path.joinpath("postgres", "PG_VERSION").write_text("9.6\n", "utf-8")
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(DependencyUnavailable, match=r"postgres.*log"):
        async with Stack(tmp_path, env=ISOLATED, preferred_ports=False, timeout_s=20):
            pass
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert Home(tmp_path).read_state() is None
