"""Compactions in this process, under the same contract as those on AlloyDB."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby

from lamina.errors import ConstraintViolated, NotFound, StaleVersion
from lamina.events import CompactionRequested
from lamina.model import derived_id
from lamina.ports import CompactionBatch, Consolidation, OldEpisode
from lamina.settings import Settings
from lamina.testing.entities import InMemoryEntities
from lamina.testing.episodes import HeldEpisode, InMemoryEpisodes


@dataclass
class HeldCompaction:
    """A consolidation as it is stored."""

    request: CompactionRequested
    result: Consolidation
    created_at: datetime


class InMemoryCompactions:
    """Implements `lamina.ports.CompactionStore` over the episodes and entities of the other fakes."""

    def __init__(
        self, episodes: InMemoryEpisodes, entities: InMemoryEntities, settings: Settings | None = None
    ) -> None:
        self.compactions: dict[uuid.UUID, HeldCompaction] = {}
        self._episodes = episodes
        self._entities = entities
        self._settings = settings or Settings()
        self._results: dict[tuple[str, str, uuid.UUID], uuid.UUID] = {}

    async def plan(self, before: datetime) -> Sequence[CompactionRequested]:
        """See `CompactionStore.plan`."""
        keys = {
            (held.turn.app, held.turn.user_id, held.turn.project_id)
            for held in self._untouched()
            if held.turn.occurred_at < before
        }
        return [
            CompactionRequested(app=app, user_id=user_id, project_id=project_id, before=before)
            for app, user_id, project_id in sorted(keys, key=lambda key: (*key[:2], key[2] or ""))
        ]

    async def batch(self, request: CompactionRequested, size: int) -> CompactionBatch:
        """See `CompactionStore.batch`."""
        taken: list[HeldEpisode] = []
        for _, chunks in groupby(self._old(request), key=lambda held: (held.turn.session, held.turn.turn_id)):
            if len(taken) >= size:
                return CompactionBatch(tuple(map(_old_episode, taken)), more=True)
            taken.extend(chunks)
        return CompactionBatch(tuple(map(_old_episode, taken)), more=False)

    async def apply(
        self, request: CompactionRequested, result: Consolidation, event_id: uuid.UUID
    ) -> uuid.UUID:
        """See `CompactionStore.apply`."""
        event = (request.app, request.user_id, event_id)
        tombstones = self._episodes.tombstones.of(request.app, request.user_id)
        result = replace(result, lines=tombstones.kept_lines(result.lines))
        if event in self._results:
            return self._results[event]
        covered = [held for held in self._old(request) if held.episode_id in result.covers]
        if len(covered) != len(set(result.covers)):
            raise StaleVersion("some episodes are no longer there to cover")
        if not {line.turn_id for line in result.lines} <= {held.turn.turn_id for held in covered}:
            raise ConstraintViolated("a line stands on a turn that is not covered")
        compaction_id = derived_id("compaction", request.app, request.user_id, str(event_id))
        for held in covered:
            held.archived_by = compaction_id
        self.compactions[compaction_id] = HeldCompaction(request, result, datetime.now(UTC))
        return self._results.setdefault(event, compaction_id)

    async def applied(self, request: CompactionRequested) -> uuid.UUID | None:
        """See `CompactionStore.applied`."""
        return self._results.get((request.app, request.user_id, request.event_id()))

    async def undo(self, app: str, user_id: str, compaction_id: uuid.UUID) -> int:
        """See `CompactionStore.undo`."""
        held = self.compactions.get(compaction_id)
        if held is None or (held.request.app, held.request.user_id) != (app, user_id):
            raise NotFound(f"there is no compaction {compaction_id}")
        back = [episode for episode in self._episodes.all() if episode.archived_by == compaction_id]
        for episode in back:
            episode.archived_by = None
        return len(back)

    async def expire(self, now: datetime) -> dict[str, int]:
        """See `CompactionStore.expire`. Processed events are not kept here, so that none expire."""
        counts = {"episodes": 0, "statements": 0, "entities": 0, "processed_events": 0}
        if self._settings.archive_days is not None:
            counts["episodes"] = self._expire_archived(now - timedelta(days=self._settings.archive_days))
        if self._settings.session_days is not None:
            before = now - timedelta(days=self._settings.session_days)
            counts["statements"], counts["entities"] = self._entities.expire_sessions(before)
        return counts

    def _expire_archived(self, before: datetime) -> int:
        count = 0
        for key, chunks in self._episodes.episodes.items():
            kept = [
                held
                for held in chunks
                if held.archived_by is None or self.compactions[held.archived_by].created_at >= before
            ]
            count += len(chunks) - len(kept)
            self._episodes.episodes[key] = kept
        return count

    def _old(self, request: CompactionRequested) -> list[HeldEpisode]:
        wanted = (request.app, request.user_id, request.project_id)
        return [
            held
            for held in self._untouched()
            if (held.turn.app, held.turn.user_id, held.turn.project_id) == wanted
            and held.turn.occurred_at < request.before
        ]

    def _untouched(self) -> list[HeldEpisode]:
        """What no compaction has covered, not even one undone since."""
        covered = {episode for held in self.compactions.values() for episode in held.result.covers}
        return [held for held in self._episodes.all() if held.episode_id not in covered]


def _old_episode(held: HeldEpisode) -> OldEpisode:
    return OldEpisode(
        episode_id=held.episode_id,
        session_id=held.turn.session_id,
        turn_id=held.turn.turn_id,
        speaker=held.chunk.speaker.value,
        text=held.chunk.text,
        occurred_at=held.turn.occurred_at,
    )
