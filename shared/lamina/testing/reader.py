"""A MemoryReader over given views, for tests of what is done with them. It ranks by shared words alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lamina.api import ContextRequest, EntityView, EpisodeView, SearchRequest
from lamina.errors import DependencyUnavailable
from lamina.forgetting import Tombstones
from lamina.model import Scope, SessionKey, Summary, Turn
from lamina.ports import Recalled, Vector
from lamina.recall.words import or_query

View = TypeVar("View", EntityView, EpisodeView)


@dataclass
class InMemoryReader:
    """Implements `lamina.ports.MemoryReader` for one user's memory, as given."""

    entities: list[EntityView] = field(default_factory=list[EntityView])
    episodes: list[EpisodeView] = field(default_factory=list[EpisodeView])
    summaries: dict[str, Summary] = field(default_factory=dict[str, Summary])
    """By session id."""
    turns: list[Turn] = field(default_factory=list[Turn])
    """The log; `tail` takes those of the session."""
    forgotten: Tombstones = field(default_factory=Tombstones)
    down: bool = False
    """While True, every call raises DependencyUnavailable."""
    vectors: list[Vector | None] = field(default_factory=list[Vector | None])
    """The vector of each question asked."""

    async def recall(
        self,
        request: ContextRequest,
        vector: Vector | None,
        model: str,
        *,
        tail: int,
        seen: Sequence[str] = (),
    ) -> Recalled:
        """See `MemoryReader.recall`."""
        self._answer_or_raise(vector)
        holding = [
            entity
            for entity in self._in_scope(request.project_id, request.session_id)
            if entity.valid_to is None
        ]
        lost = [t for t in self.turns if t.session_id == request.session_id and t.turn_id not in seen]
        return Recalled(
            summary=self.summaries.get(request.session_id)
            or self.summaries.get(request.previous_session_id or ""),
            rules=tuple(entity for entity in holding if entity.kind.pinned),
            entities=_ranked(request.query, [e for e in holding if not e.kind.pinned], request.max_entities),
            episodes=_ranked(
                request.query,
                [e for e in self._episodes(request.project_id) if e.turn_id not in seen],
                request.max_episodes if request.query.strip() else 0,
            ),
            tail=tuple(lost[max(0, len(lost) - tail) :]),
            forgotten=self.forgotten,
        )

    async def search(self, request: SearchRequest, vector: Vector | None, model: str) -> Recalled:
        """See `MemoryReader.search`."""
        self._answer_or_raise(vector)
        entities = self._in_scope(request.project_id, request.session_id)
        return Recalled(
            entities=_ranked(request.query, entities, request.k if "entities" in request.include else 0),
            episodes=_ranked(
                request.query,
                self._episodes(request.project_id),
                request.k if "episodes" in request.include else 0,
            ),
        )

    async def turn(self, session: SessionKey, turn_id: str) -> Turn | None:
        """See `MemoryReader.turn`."""
        self._answer_or_raise(None)
        return next((t for t in self.turns if t.session == session and t.turn_id == turn_id), None)

    async def ping(self) -> None:
        """See `MemoryReader.ping`."""
        self._answer_or_raise(None)

    def _answer_or_raise(self, vector: Vector | None) -> None:
        if self.down:
            raise DependencyUnavailable("database", "connection refused")
        self.vectors.append(vector)

    def _in_scope(self, project_id: str | None, session_id: str | None) -> list[EntityView]:
        owners = {Scope.GLOBAL: None, Scope.PROJECT: project_id, Scope.SESSION: session_id}
        return [
            entity
            for entity in self.entities
            if entity.scope is Scope.GLOBAL
            or (entity.project_id if entity.scope is Scope.PROJECT else entity.session_id)
            == owners[entity.scope]
        ]

    def _episodes(self, project_id: str | None) -> list[EpisodeView]:
        return [episode for episode in self.episodes if episode.project_id in (None, project_id)]


def _ranked(query: str, views: list[View], most: int) -> tuple[View, ...]:
    asked = set(or_query(query))
    scored = [
        view.model_copy(update={"score": float(len(asked & set(or_query(view.text))))}) for view in views
    ]
    return tuple(sorted(scored, key=lambda view: -view.score)[:most])
