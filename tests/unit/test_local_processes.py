"""Child processes: restarted when they crash, gone when we are, and never confused with somebody else's."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from lamina.errors import DependencyUnavailable
from lamina_services.local.identity import ProcessIdentity, end_all
from lamina_services.local.polling import until
from lamina_services.local.ports import HeldPort, can_connect, listening, port_of
from lamina_services.local.processes import Child, Children, Command, run_once


def _python(code: str, log: Path) -> Command:
    return Command("child", [sys.executable, "-c", code], log, env=dict(os.environ))


def _waiting(log: Path) -> Command:
    return _python("import time; print('here', flush=True); time.sleep(600)", log)


async def _written(child: Child, text: str) -> None:
    async def there() -> bool:
        return text in child.command.log.read_text("utf-8")

    await until(there, timeout_s=20, what="the child's output")


async def test_a_child_that_crashes_runs_again(tmp_path: Path) -> None:
    children = Children(lambda: None)
    child = await children.start(_waiting(tmp_path / "log"))
    await _written(child, "here")
    first = child.identity
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)

    async def runs_again() -> bool:
        return child.identity is not None and child.identity.pid != first.pid

    await until(runs_again, timeout_s=20, what="the child")
    await children.stop()
    assert child.restarts == 1


async def test_a_child_that_is_kept_away_runs_again_once_it_is_let_back(tmp_path: Path) -> None:
    children = Children(lambda: None)
    child = await children.start(_waiting(tmp_path / "log"))
    await _written(child, "here")
    first = child.identity
    await child.kill_and_keep_away()
    assert first is not None
    assert first.find() is None
    child.let_back()

    async def runs_again() -> bool:
        return child.identity is not None and child.identity.pid != first.pid

    await until(runs_again, timeout_s=20, what="the child")
    await child.kill_and_keep_away()
    await children.stop()
    assert child.restarts == 1, "one that is away can be stopped as well"


async def test_a_stopped_child_stays_stopped_even_if_it_will_not_listen(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('here', flush=True); time.sleep(600)"
    )
    children = Children(lambda: None)
    command = Command(
        "child", [sys.executable, "-c", deaf], tmp_path / "log", env=dict(os.environ), patience_s=0.3
    )
    child = await children.start(command)
    await _written(child, "here")
    identity = child.identity
    assert identity is not None
    await children.stop()
    assert identity.find() is None


async def test_a_child_that_cannot_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    children = Children(lambda: None)
    child = await children.start(_python("raise SystemExit('no such port')", tmp_path / "log"))

    async def crashes() -> bool:
        child.raise_if_it_crashes()
        return False

    with pytest.raises(DependencyUnavailable, match="no such port"):
        await until(crashes, timeout_s=20, what="the child")
    await children.stop()


async def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(DependencyUnavailable, match="disk is full"):
        await run_once(_python("raise SystemExit('the disk is full')", tmp_path / "log"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
async def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = """
import asyncio, os, sys
from pathlib import Path
from lamina_services.local.processes import Children, Command

async def main():
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    command = Command("child", argv, Path(sys.argv[1]), env=dict(os.environ))
    child = await Children(lambda: None).start(command)
    print(child.identity.model_dump_json(), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", parent, str(tmp_path / "log")), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    child = ProcessIdentity.model_validate_json(await process.stdout.readline())
    assert child.find() is not None
    process.kill()
    await process.wait()

    async def gone() -> bool:
        return child.find() is None

    await until(gone, timeout_s=20, what="the end of the child")


async def test_what_an_earlier_run_left_is_ended_and_a_namesake_is_not(tmp_path: Path) -> None:
    children = Children(lambda: None)
    child = await children.start(_waiting(tmp_path / "log"))
    await _written(child, "here")
    identity = child.identity
    assert identity is not None
    namesake = identity.model_copy(update={"started": identity.started - 3600})
    assert end_all([namesake]) == []
    assert psutil.pid_exists(identity.pid)
    child.abandon()
    assert await asyncio.to_thread(end_all, [identity]) == ["child"]
    assert identity.find() is None
    await children.stop()


async def test_a_taken_port_is_not_chosen_and_a_held_one_can_be_used() -> None:
    with listening(0) as taken:
        assert HeldPort(port_of(taken)).number != port_of(taken)
        with listening(port_of(taken)) as other:
            assert port_of(other) != port_of(taken)
            assert await can_connect(f"127.0.0.1:{port_of(other)}")
    held = HeldPort()
    assert not await can_connect(f"127.0.0.1:{held.number}")
    with listening(held.number) as mine:
        assert port_of(mine) == held.number
    held.release()
