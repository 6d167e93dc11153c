"""Reads turns from files: JSON lines of our own, and logs of coding agents."""

import gzip
import hashlib
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast

from lamina import strict_json
from lamina.envelope import encode
from lamina.errors import ConfigurationError, InvalidEvent, TooLarge
from lamina.events import TurnPublished
from lamina.model import Turn, derived_id
from lamina.turns import complete_turn
from lamina_services.cli.coding_session import events_of

STDIN = Path("-")


@dataclass(frozen=True)
class Defaults:
    """For lines that do not say."""

    app: str
    user_id: str | None = None
    project_id: str | None = None

    def fill(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields, with what is missing."""
        own = {"app": self.app, "user_id": self.user_id, "project_id": self.project_id}
        return {**{name: value for name, value in own.items() if value is not None}, **fields}


@dataclass(frozen=True)
class Good:
    """A line that is a turn."""

    number: int
    turn: Turn


@dataclass(frozen=True)
class Bad:
    """A line that is none, and why."""

    number: int
    problem: str


@dataclass(frozen=True)
class Line:
    """A line as it was read."""

    number: int
    text: bytes
    read_at: datetime

    def turn_id(self) -> str:
        """The same for the same line of the same file, so that publishing it again changes nothing."""
        return str(derived_id("line", str(self.number), hashlib.sha256(self.text).hexdigest()))

    def fallback_time(self) -> datetime:
        """Keeps lines without a time in the file's order."""
        return self.read_at + timedelta(milliseconds=self.number)


Reader = Callable[[Line, Any, Defaults], Turn]


def read_lines(path: Path, read: Reader, defaults: Defaults) -> Iterator[Good | Bad]:
    """Every line that is not empty. ConfigurationError where the file cannot be read."""
    now = datetime.now(UTC)
    try:
        with _open(path) as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield _read_line(Line(number, text.strip(), now), read, defaults)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise ConfigurationError(f"{path}: the gzip data is cut off or damaged: {error}") from None


def plain_turn(line: Line, value: Any, defaults: Defaults) -> Turn:
    """A turn in long or short form."""
    if not isinstance(value, Mapping):
        raise InvalidEvent(["a turn is a JSON object"])
    fields = defaults.fill(cast(Mapping[str, Any], value))
    return complete_turn(fields, turn_id=line.turn_id(), at=line.fallback_time())


def coding_session_turn(line: Line, value: Any, defaults: Defaults) -> Turn:
    """A turn of a coding agent's log."""
    if not isinstance(value, Mapping):
        raise InvalidEvent(["a turn is a JSON object"])
    log = cast(Mapping[str, Any], value)
    missing = [name for name in ("session_id", "turn", "events") if name not in log]
    if missing:
        raise InvalidEvent([f"{name}: is missing" for name in missing])
    fields = {
        "session_id": log["session_id"],
        "turn_id": str(derived_id("coding session", str(log["session_id"]), str(log["turn"]))),
        "events": events_of(log["events"]),
    }
    return complete_turn(defaults.fill(fields), at=line.fallback_time())


def _read_line(line: Line, read: Reader, defaults: Defaults) -> Good | Bad:
    try:
        turn = read(line, strict_json.loads(line.text), defaults)
        encode(TurnPublished(turn=turn))  # a turn that fits here also fits as turn-ingest sends it on
        return Good(line.number, turn)
    except TooLarge as error:
        return Bad(line.number, str(error))
    except InvalidEvent as error:
        return Bad(line.number, str(error).replace("body: is not JSON", "is not JSON"))


def _open(path: Path) -> BinaryIO:
    if path == STDIN:
        return sys.stdin.buffer
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")
