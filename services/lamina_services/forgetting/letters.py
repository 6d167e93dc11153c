"""Which dead letters hold something forgotten. Pure."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

from lamina.forgetting import Tombstones
from lamina.moments import moment_of
from lamina.pubsub.letter import DeadLetter


def is_forgotten(letter: DeadLetter, stones: Tombstones) -> bool:
    """Whether its turn is. Read leniently: a dead letter is often one that breaks its contract.

    Where it does not say when the turn occurred, the moment at which it was first seen stands in.
    """
    owner = letter.owner
    if (owner.app, owner.user_id) != (stones.app, stones.user_id):
        return False
    at = _occurred_at(letter.message.data) or letter.failure.first_seen or letter.parked_at
    at = at or datetime.min.replace(tzinfo=UTC)
    return any(
        stone.covers(owner.session_id, owner.turn_id, owner.project_id or None, at) for stone in stones.each
    )


def _occurred_at(data: bytes) -> datetime | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    for each in _objects(value):
        text = each.get("occurred_at")
        if isinstance(text, str):
            return moment_of(text)
    return None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The turn as a payload, a bare turn or a structured CloudEvent holds it."""
    if isinstance(value, dict):
        outer = cast("dict[str, Any]", value)
        yield outer
        yield from _objects(outer.get("turn"))
        yield from _objects(outer.get("data"))
