"""Which dead letters hold something forgotten. Pure."""

from datetime import UTC, datetime

from lamina.forgetting import Tombstones
from lamina.pubsub.letter import DeadLetter


def is_forgotten(letter: DeadLetter, stones: Tombstones) -> bool:
    """Whether its turn is. Read leniently: a dead letter is often one that breaks its contract.

    Where it does not say when the turn occurred, the moment at which it was first seen stands in.
    """
    owner = letter.owner
    if (owner.app, owner.user_id) != (stones.app, stones.user_id):
        return False
    at = owner.occurred_at or letter.failure.first_seen or letter.parked_at
    at = at or datetime.min.replace(tzinfo=UTC)
    return any(
        stone.covers(owner.session_id, owner.turn_id, owner.project_id or None, at) for stone in stones.each
    )
