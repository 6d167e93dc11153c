"""The turn log and its episodes in this process, under the same contract as those on AlloyDB."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lamina import strict_json
from lamina.model import EpisodeChunk, SessionKey, Turn, derived_id
from lamina.ports import Vector
from lamina.testing.tombstones import InMemoryTombstones


@dataclass
class HeldEpisode:
    """A chunk as it is stored."""

    episode_id: uuid.UUID
    turn: Turn
    chunk: EpisodeChunk
    chunker: str = ""
    model: str = ""
    vector: Vector | None = None
    archived_by: uuid.UUID | None = None


class InMemoryEpisodes:
    """Implements `lamina.ports.EpisodeStore`."""

    def __init__(self, tombstones: InMemoryTombstones | None = None) -> None:
        self.tombstones = tombstones or InMemoryTombstones()
        self.turns: dict[tuple[SessionKey, str], bytes] = {}
        """The log, as JSON text: by session and turn id."""
        self.episodes: dict[tuple[SessionKey, str], list[HeldEpisode]] = {}
        self.done: set[uuid.UUID] = set()

    async def record(self, turn: Turn, chunks: Sequence[EpisodeChunk], chunker: str = "") -> Sequence[int]:
        """See `EpisodeStore.record`."""
        self.tombstones.of(turn.app, turn.user_id).refuse(turn)
        key = (turn.session, turn.turn_id)
        logged = _decoded(self.turns.setdefault(key, turn.encode()))
        if not self.episodes.get(key):
            self.episodes[key] = [
                HeldEpisode(_episode_id(logged, c.ordinal), logged, c, chunker) for c in chunks
            ]
        return sorted(held.chunk.ordinal for held in self.episodes[key] if held.vector is None)

    async def embed(
        self, turn: Turn, vectors: dict[int, Vector], model: str, event_id: uuid.UUID | None
    ) -> None:
        """See `EpisodeStore.embed`."""
        self.tombstones.of(turn.app, turn.user_id).refuse(turn)
        for held in self.episodes.get((turn.session, turn.turn_id), []):
            if held.vector is None and (vector := vectors.get(held.chunk.ordinal)) is not None:
                held.vector, held.model = vector, model
        if event_id:
            self.done.add(event_id)

    async def turn(self, session: SessionKey, turn_id: str) -> Turn | None:
        """See `EpisodeStore.turn`."""
        text = self.turns.get((session, turn_id))
        return None if text is None else _decoded(text)

    def all(self) -> list[HeldEpisode]:
        """Every chunk, oldest first."""
        held = [each for chunks in self.episodes.values() for each in chunks]
        return sorted(
            held, key=lambda e: (e.turn.occurred_at, e.turn.session_id, e.turn.turn_id, e.chunk.ordinal)
        )


def _episode_id(turn: Turn, ordinal: int) -> uuid.UUID:
    names = (turn.app, turn.user_id, turn.session_id, turn.turn_id, str(ordinal))
    return derived_id("episode", *names)


def _decoded(text: bytes) -> Turn:
    return Turn.model_validate(strict_json.loads(text))  # pydantic's own parser refuses lone surrogates
