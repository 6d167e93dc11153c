"""Child processes that cannot outlive us: started through `launch.py`, watched, restarted, stopped."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lamina.errors import DependencyUnavailable
from lamina_services.local.identity import ProcessIdentity

_LAUNCH = Path(__file__).with_name("launch.py")
_FIRST_BACKOFF_S = 0.25
_LONGEST_BACKOFF_S = 10.0
_STABLE_S = 30.0


@dataclass(frozen=True)
class Command:
    """What to run, and how it likes to be stopped."""

    name: str
    argv: Sequence[str]
    log: Path
    """Standard output and error are appended here."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """The whole environment of the child."""
    stop_signal: signal.Signals = signal.SIGTERM
    patience_s: float = 8.0
    """How long a stop may take before it is forced."""
    fds: tuple[int, ...] = ()
    """Open file descriptors that the child inherits."""
    user: tuple[int, int] | None = None
    """(uid, gid) to run as, where we are root and the program refuses to be."""

    def launched_by(self, parent: int) -> list[str]:
        """The full command line, tied to a parent."""
        uid, gid = self.user or (-1, -1)
        shim = [sys.executable, "-I", "-S", str(_LAUNCH), str(parent), str(int(self.stop_signal))]
        return [*shim, str(uid), str(gid), *self.argv]


class Child:
    """One program, kept running until it is stopped."""

    def __init__(self, command: Command, on_change: Callable[[], None]) -> None:
        self.command = command
        self.restarts = 0
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._identity: ProcessIdentity | None = None
        self._stopping = False
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._watch: asyncio.Task[None] | None = None

    @property
    def identity(self) -> ProcessIdentity | None:
        """Who runs now, if anybody does."""
        return self._identity

    async def start(self) -> None:
        """Start it and keep it running."""
        await self._spawn()
        self._watch = asyncio.create_task(self._keep_running())

    async def stop(self) -> None:
        """Ask it to stop, wait, and end it by force where it does not."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(self.command.stop_signal)
            try:
                await asyncio.wait_for(process.wait(), self.command.patience_s)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def kill_and_keep_away(self) -> None:
        """End it by force, and do not start it again before `let_back`: an outage, for tests."""
        self._may_run.clear()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def let_back(self) -> None:
        """Start it again."""
        self._may_run.set()

    def abandon(self) -> None:
        """Let it run, and do not start it again."""
        self._stopping = True

    async def _spawn(self) -> None:
        with self.command.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command.launched_by(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.command.env),
                pass_fds=self.command.fds,
                start_new_session=True,  # Ctrl-C reaches us alone; we stop the children in order
            )
        self._identity = ProcessIdentity.of(self.command.name, self._process.pid)
        self._on_change()

    async def _keep_running(self) -> None:
        backoff = _FIRST_BACKOFF_S
        while self._process is not None:
            began = time.monotonic()
            await self._process.wait()
            if self._stopping:
                return
            self._identity = None
            self._on_change()
            backoff = _FIRST_BACKOFF_S if time.monotonic() - began > _STABLE_S else backoff
            await asyncio.sleep(backoff)
            await self._may_run.wait()
            backoff = min(backoff * 2, _LONGEST_BACKOFF_S)
            self.restarts += 1
            await self._spawn()

    def failure(self) -> str:
        """The last lines that the program wrote, for an error message."""
        text = self.command.log.read_text("utf-8", "replace") if self.command.log.exists() else ""
        words = [line.strip() for line in text.splitlines()[-3:]]
        return " / ".join(word for word in words if word) or "it wrote nothing"

    def raise_if_it_crashes(self) -> None:
        """DependencyUnavailable, with its last words, once it has been restarted without success."""
        if self.restarts >= 3:
            raise DependencyUnavailable(
                self.command.name, f"it ends as soon as it starts: {self.failure()} (see {self.command.log})"
            )


class Children:
    """The processes of one stack."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._children: list[Child] = []

    async def start(self, command: Command) -> Child:
        """Start one more."""
        child = Child(command, self._on_change)
        self._children.append(child)
        await child.start()
        return child

    def identities(self) -> list[ProcessIdentity]:
        """Who runs now."""
        return [child.identity for child in self._children if child.identity is not None]

    def named(self, name: str) -> Child:
        """The child of that name; KeyError where there is none."""
        return {child.command.name: child for child in self._children}[name]

    async def stop(self, *groups: Sequence[str]) -> None:
        """Stop the named groups one after the other, each at once, then all the rest."""
        for group in groups:
            await self._stop([child for child in self._children if child.command.name in group])
        await self._stop(self._children)

    async def _stop(self, children: list[Child]) -> None:
        await asyncio.gather(*(child.stop() for child in children))
        self._children = [child for child in self._children if child not in children]


async def run_once(command: Command) -> None:
    """Run a program to its end. DependencyUnavailable, with its last words, where it fails."""
    process = await asyncio.create_subprocess_exec(
        *command.launched_by(os.getpid()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(command.env),
        start_new_session=True,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    with command.log.open("ab") as log:
        log.write(output)
    if process.returncode != 0:
        words = output.decode("utf-8", "replace").strip().splitlines()[-2:]
        raise DependencyUnavailable(command.name, " / ".join(words) or f"it ended with {process.returncode}")
