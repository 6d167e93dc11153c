"""The folder that holds everything of one local stack: data, secrets, logs, and who runs now."""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lamina.errors import ConfigurationError
from lamina.model import Frozen
from lamina_services.local.identity import ProcessIdentity

DEFAULT_HOME = Path(".lamina")

_OURS = ("postgres", "postgres.new", "valkey", "pubsub", "logs", "secrets.json", "stack.json", "lock")
_SECRETS = TypeAdapter(dict[str, str])


class StackState(Frozen):
    """What runs, and how to reach it. Holds passwords: kept for the owner's eyes only."""

    supervisor: ProcessIdentity
    children: tuple[ProcessIdentity, ...] = ()
    ready: bool = False
    project: str
    pubsub: str
    """`host:port`, for PUBSUB_EMULATOR_HOST."""
    database_url: str
    """Logs in as the administrator."""
    valkey_url: str
    services: dict[str, str]
    """Base URL of each service, by its name."""

    @property
    def context_url(self) -> str:
        """Where agents ask for memory."""
        return self.services["context"]


class Home:
    """Paths under one folder, and what is kept there."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().resolve()
        self.logs = self.root / "logs"
        self.postgres = self.root / "postgres"
        self.valkey = self.root / "valkey"
        self.pubsub = self.root / "pubsub"
        self._state = self.root / "stack.json"
        self._secrets = self.root / "secrets.json"
        self._lock = self.root / "lock"

    def create(self) -> None:
        """Make the folders. Root's servers run as another user, who has to be able to walk in."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(0o711 if os.geteuid() == 0 else 0o700)
            for folder in (self.logs, self.valkey, self.pubsub):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            if isinstance(error, NotADirectoryError) or self.root.is_file():
                raise self._no_folder() from error
            raise ConfigurationError(
                f"LAMINA_HOME: {self.root} cannot be used: {error.strerror or error}"
            ) from error

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the folder alone. The lock dies with its process, so none is ever stale."""
        with self._lock.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigurationError(
                    f"a stack runs under {self.root} already: `lamina status` shows it, `lamina down` ends it"
                ) from None
            yield

    def secret(self, *names: str) -> dict[str, str]:
        """The passwords of these names, made up on first use and kept."""
        known = {**{name: secrets.token_urlsafe(24) for name in names}, **self._known_secrets()}
        _write_private(self._secrets, json.dumps(known, indent=2))
        return {name: known[name] for name in names}

    def _known_secrets(self) -> dict[str, str]:
        try:
            return _SECRETS.validate_json(self._secrets.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no JSON object of passwords"
            raise ConfigurationError(
                f"{self._secrets} cannot be read ({why}): restore it, since the data needs its passwords, "
                "or `lamina down --wipe` deletes both"
            ) from None

    def write_state(self, state: StackState) -> None:
        """Say what runs."""
        _write_private(self._state, state.model_dump_json(indent=2))

    def read_state(self) -> StackState | None:
        """What runs, or ran when the stack was last killed; None after a clean stop."""
        try:
            return StackState.model_validate_json(self._state.read_bytes())
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise self._no_folder() from error
        except (OSError, ValidationError) as error:
            raise ConfigurationError(
                f"{self._state} cannot be read ({str(error).splitlines()[0]}); `lamina down --wipe` clears it"
            ) from error

    def read_state_or_none(self) -> StackState | None:
        """The same, where a file that cannot be read is about to be deleted anyway."""
        try:
            return self.read_state()
        except ConfigurationError:
            return None

    def running(self) -> StackState:
        """What runs now. ConfigurationError where nothing does."""
        state = self.read_state()
        if state is None or state.supervisor.find() is None:
            raise ConfigurationError(
                f"no stack runs under {self.root}; start one with `lamina up`, or set LAMINA_HOME"
            )
        return state

    def subscriptions(self) -> dict[str, dict[str, int]]:
        """Each subscription's counters, as the emulator last wrote them; none where it is somebody else's."""
        return self.report().get("subscriptions", {})

    def report(self) -> dict[str, Any]:
        """`subscriptions`, and when they were written and began to be counted; empty where there is none."""
        try:
            return json.loads((self.pubsub / "report.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}

    def forget_state(self) -> None:
        """Nothing runs any more."""
        self._state.unlink(missing_ok=True)

    def wipe(self) -> None:
        """Delete what a stack keeps here, and nothing else."""
        for name in _OURS:
            path = self.root / name
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            except NotADirectoryError as error:
                raise self._no_folder() from error
        if self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()

    def _no_folder(self) -> ConfigurationError:
        return ConfigurationError(f"LAMINA_HOME: {self.root} is not a folder; name another one")


def _write_private(path: Path, text: str) -> None:
    """Replace a file in one step; nobody else can read it, not even for a moment."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
