"""Runs as a script: ties this process to its parent, drops root where asked to, then becomes the command.

`python -I -S launch.py PARENT_PID SIGNAL UID GID COMMAND …` (UID -1: stay who we are). A program of its own,
rather than code between fork and exec, is safe beside threads. Only the standard library is imported, so it
costs about ten milliseconds.
"""

import ctypes
import os
import sys

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _drop_root(uid: int, gid: int) -> None:
    """Become another user, who may still walk through folders that only root can enter.

    Without that one capability a clone under /root would need its parent folders opened to everybody.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # Without this bit access() ignores the capabilities of anybody but root.
    if _LINUX and libc.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0) != 0:
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if not _LINUX:
        return
    for capability in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE):  # containers often grant only the second
        if _keep_only(libc, 1 << capability):
            libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0)
            return
    _keep_only(libc, 0)


def _keep_only(libc: ctypes.CDLL, bits: int) -> bool:
    header = _Header(_CAPABILITY_VERSION_3, 0)
    wanted = (_Capabilities * 2)(_Capabilities(bits, bits, bits), _Capabilities(0, 0, 0))
    return libc.capset(ctypes.byref(header), wanted) == 0


def _main(arguments: list[str]) -> None:
    parent, death_signal, uid, gid = (int(value) for value in arguments[:4])
    command = arguments[4:]
    if uid >= 0:
        _drop_root(uid, gid)
    if _LINUX:  # after the change of user, which would clear it
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:  # it died before it could be watched
        sys.exit(1)
    try:
        os.execv(command[0], command)  # noqa: S606 - the command comes from this package, never from a user
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    _main(sys.argv[1:])
