"""Which process was that? Its id may belong to somebody else by now; with its start time it cannot."""

import contextlib
import os
import time

import psutil

from lamina.model import Frozen

_SAME_START_S = 0.05


class ProcessIdentity(Frozen):
    """A process, told apart from a later one with the same id."""

    name: str
    pid: int
    started: float

    @classmethod
    def of(cls, name: str, pid: int) -> "ProcessIdentity | None":
        """The identity of a process that runs now; None where it has ended already."""
        try:
            return cls(name=name, pid=pid, started=psutil.Process(pid).create_time())
        except psutil.Error:
            return None

    @classmethod
    def me(cls, name: str) -> "ProcessIdentity":
        """This very process."""
        return cls(name=name, pid=os.getpid(), started=psutil.Process().create_time())

    def find(self) -> psutil.Process | None:
        """The process, while it runs."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < _SAME_START_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


def end_all(identities: list[ProcessIdentity], *, patience_s: float = 10) -> list[str]:
    """End what an earlier run left behind: politely, then not. Blocks; gives the names of what was ended."""
    found = [(identity.name, process) for identity in identities if (process := identity.find())]
    for _, process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs([process for _, process in found], timeout=patience_s)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=patience_s)
    return [name for name, _ in found]


def wait_gone(identity: ProcessIdentity, *, timeout_s: float) -> bool:
    """Wait until the process has ended. Blocks; False where it still runs after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while identity.find():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
