"""Dead letters in a file: JSON Lines that hold each message whole, and can be read back."""

import base64
import binascii
import json
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from lamina import strict_json
from lamina.errors import ConfigurationError, InvalidEvent
from lamina.ports import Message
from lamina.pubsub.letter import DeadLetter
from lamina.topology import load_topology


def facts(letter: DeadLetter) -> dict[str, Any]:
    """What there is to know of a dead letter but its message, as a JSON value."""
    failure = letter.failure
    return {
        "subscription": letter.subscription,
        "message_id": letter.message_id,
        "event_id": letter.event_id,
        "type": letter.message.attributes.get("ce-type", ""),
        "error": failure.error,
        "reason": failure.reason,
        "failures": failure.failures,
        "first_seen": _text(failure.first_seen),
        "parked_at": _text(letter.parked_at),
        "service": failure.service,
        "version": failure.version,
        "trace_id": failure.trace_id,
        **letter.owner.names(),
        "bytes": len(letter.message.data),
    }


def record(letter: DeadLetter) -> dict[str, Any]:
    """The whole of it as a JSON value. `json` is the data once more, where it is JSON."""
    message = letter.message
    return {
        **facts(letter),
        "published": _text(letter.published),
        "ordering_key": message.ordering_key,
        "attributes": message.attributes,
        "data": base64.b64encode(message.data).decode("ascii"),
        **({"json": decoded} if (decoded := value_of(message.data)) is not None else {}),
    }


def value_of(data: bytes) -> Any:
    """The JSON value of a message's data; None where it is no JSON."""
    try:
        return strict_json.loads(data)
    except InvalidEvent:
        return None


def lines(letters: Iterable[DeadLetter]) -> Iterator[bytes]:
    """A line each."""
    for letter in letters:
        yield strict_json.dumps(record(letter)) + b"\n"


def write(path: Path, letters: Iterable[DeadLetter]) -> None:
    """Write a new file, for its owner's eyes only, and see it safe on the disk.

    ConfigurationError where it exists already or cannot be written: then there is none that holds but a part.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(lines(letters))
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(path.parent)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigurationError(f"{path}: {error.strerror or error}") from error
        raise


def read(path: Path) -> list[DeadLetter]:
    """The dead letters that a file holds. ConfigurationError names the first line that is none."""
    try:
        with path.open("rb") as file:
            return [_letter(path, number, line) for number, line in enumerate(file, 1) if line.strip()]
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error


def _letter(path: Path, number: int, line: bytes) -> DeadLetter:
    where = f"{path}: line {number}"
    try:
        told = cast("dict[str, Any]", json.loads(line))
        subscription = load_topology().subscription(str(told["subscription"]))
        attributes = {str(name): str(text) for name, text in told["attributes"].items()}
        message = Message(
            base64.b64decode(told["data"], validate=True), attributes, str(told.get("ordering_key", ""))
        )
        published = datetime.fromisoformat(told["published"]) if told.get("published") else None
        return DeadLetter.of(
            subscription.name, message, str(told["message_id"]), published, subscription.service
        )
    except KeyError as error:
        raise ConfigurationError(f"{where}: {error} is missing or unknown") from None
    except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise ConfigurationError(f"{where}: is no dead letter: {error}") from None


def _sync_folder(folder: Path) -> None:
    """A new file's name is on the disk once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
