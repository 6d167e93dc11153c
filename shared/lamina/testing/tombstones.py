"""Tombstones in this process: the fakes of one memory share them."""

from lamina.forgetting import Tombstone, Tombstones


class InMemoryTombstones:
    """What each user had forgotten. Nobody writes while a test adds one, so that no lock is needed."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Tombstones] = {}

    def of(self, app: str, user_id: str) -> Tombstones:
        """All of the user's."""
        return self._of.get((app, user_id), Tombstones(app, user_id))

    def add(self, app: str, user_id: str, *stones: Tombstone) -> None:
        """Refuse from now on what these name. What is held stays: deleting is not the stores' work."""
        known = self.of(app, user_id)
        self._of[app, user_id] = Tombstones(app, user_id, (*known.each, *stones), known.generation + 1)
