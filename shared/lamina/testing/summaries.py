"""Summaries in this process, under the same contract as those on AlloyDB."""

import uuid
from collections.abc import Sequence

from lamina.errors import StaleVersion
from lamina.model import SessionKey, Summary, Turn
from lamina.testing.tombstones import InMemoryTombstones

MAX_CHAIN = 16
"""How many sessions back an inherited summary is looked for."""


class InMemorySummaries:
    """Implements `lamina.ports.SummaryStore`."""

    def __init__(self, tombstones: InMemoryTombstones | None = None) -> None:
        self.tombstones = tombstones or InMemoryTombstones()
        self.versions: dict[SessionKey, list[Summary]] = {}
        self.covers: dict[SessionKey, dict[str, int]] = {}
        """The version that covers each turn."""
        self.aside: dict[SessionKey, set[str]] = {}
        """The covered turns that the lines go without."""
        self.log: dict[SessionKey, dict[str, Turn]] = {}
        """Every turn that was logged: by a commit, or by a test in the episode store's place."""

    async def latest(
        self, session: SessionKey, previous_session_id: str | None, project_id: str | None
    ) -> Summary:
        """See `SummaryStore.latest`."""
        generation = self.tombstones.of(session.app, session.user_id).generation
        latest = self._latest(session, previous_session_id, project_id)
        return latest.model_copy(update={"generation": generation})

    def _latest(
        self, session: SessionKey, previous_session_id: str | None, project_id: str | None
    ) -> Summary:
        if versions := self.versions.get(session):
            return versions[-1]
        previous = previous_session_id or self._predecessor(session)
        for _ in range(MAX_CHAIN):
            if not previous:
                break
            before = session.model_copy(update={"session_id": previous})
            if versions := self.versions.get(before):
                return versions[-1].inherited_by(session, project_id)
            previous = self._predecessor(before)
        return Summary(session=session, version=0)

    def _predecessor(self, session: SessionKey) -> str | None:
        """The session before, as the earliest logged turn that names one has it."""
        turns = sorted(self.log.get(session, {}).values(), key=lambda turn: turn.order)
        return next((turn.previous_session_id for turn in turns if turn.previous_session_id), None)

    async def covered(self, session: SessionKey, turn_ids: Sequence[str]) -> frozenset[str]:
        """See `SummaryStore.covered`."""
        return frozenset(turn_ids) & self.covers.get(session, {}).keys()

    async def uncovered(self, session: SessionKey, *, beside: Sequence[str] = ()) -> Sequence[Turn]:
        """See `SummaryStore.uncovered`."""
        covered = self.covers.get(session, {})
        known = {*covered, *beside}
        waiting = [turn for turn in self.log.get(session, {}).values() if turn.turn_id not in known]
        return sorted(waiting, key=lambda turn: turn.order)

    async def forgotten(self, turns: Sequence[Turn]) -> frozenset[str]:
        """See `SummaryStore.forgotten`."""
        if not turns:
            return frozenset()
        tombstones = self.tombstones.of(turns[0].app, turns[0].user_id)
        return frozenset(turn.turn_id for turn in turns if tombstones.forgets(turn))

    async def is_set_aside(self, session: SessionKey, turn_id: str) -> bool:
        """See `SummaryStore.is_set_aside`."""
        return turn_id in self.aside.get(session, ())

    async def commit(
        self, summary: Summary, turns: Sequence[Turn], event_id: uuid.UUID, *, set_aside: Sequence[str] = ()
    ) -> Summary:
        """See `SummaryStore.commit`."""
        tombstones = self.tombstones.of(summary.session.app, summary.session.user_id)
        if summary.generation != tombstones.generation:
            raise StaleVersion("something of the user was forgotten meanwhile")
        tombstones.refuse(*turns)
        summary = summary.model_copy(update={"lines": tombstones.kept_lines(summary.lines)})
        versions = self.versions.setdefault(summary.session, [])
        covers = self.covers.setdefault(summary.session, {})
        if summary.version != len(versions) + 1:
            raise StaleVersion(f"summary {summary.version} is not the one after {len(versions)}")
        aside = self.aside.setdefault(summary.session, set())
        if taken := (covers.keys() - aside) & {turn.turn_id for turn in turns}:
            raise StaleVersion(f"covered already: {', '.join(sorted(taken))}")
        versions.append(summary)
        covers.update({turn.turn_id: summary.version for turn in turns})
        aside.difference_update(turn.turn_id for turn in turns)
        aside.update(set_aside)
        log = self.log.setdefault(summary.session, {})
        for turn in turns:
            log.setdefault(turn.turn_id, turn)
        return summary
