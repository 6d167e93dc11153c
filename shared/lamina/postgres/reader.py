"""Read-only recall: one statement, one round trip."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, TypeVar, cast

from lamina import strict_json
from lamina.api import ContextRequest, EntityView, EpisodeView, SearchRequest
from lamina.event import Speaker
from lamina.forgetting import Tombstones
from lamina.model import Kind, SessionKey, Summary, Turn
from lamina.ports import Clock, Recalled, Vector
from lamina.postgres.database import Database, Query
from lamina.postgres.turn_log import turn_of
from lamina.recall.fusion import Candidate, Scale, rank
from lamina.recall.timewords import time_hint
from lamina.recall.words import or_query, websearch

View = TypeVar("View", EntityView, EpisodeView)
Row = Mapping[str, Any]

_LEAD = re.compile(r"\[\d{4}-\d\d-\d\d\] ([^:\n]{1,64}): ")
_EVERYBODY = {"user", "agent", "model", "assistant", "tool"}
"""Names that tell nobody apart."""

SEARCH_MS = 5_000
"""How long a search may take; a context's statement gets what is left of its deadline."""


class PostgresReader:
    """Implements `lamina.ports.MemoryReader`.

    `fusion`: a name in `lamina.recall.fusion.FUSIONS`.
    """

    def __init__(self, database: Database, clock: Clock | None = None, *, fusion: str = "min_max") -> None:
        self._database = database
        self._clock = clock
        self._fusion = fusion

    async def recall(
        self,
        request: ContextRequest,
        vector: Vector | None,
        model: str,
        *,
        tail: int,
        seen: Sequence[str] = (),
    ) -> Recalled:
        """See `MemoryReader.recall`. The statement is given `request.deadline_ms`."""
        wants_episodes = request.max_episodes > 0 and bool(request.query.strip())
        row = await self._ask(
            request,
            request.deadline_ms,
            {
                **_asked(request.query, vector, model),
                "session_id": request.session_id,
                "previous_session_id": request.previous_session_id,
                "project_id": request.project_id,
                "scope": None,
                "as_of": None,
                "entities": _pool(request.max_entities),
                "episodes": _pool(request.max_episodes) if wants_episodes else 0,
                "unmatched": True,
                "with_session": True,
                "tail": tail,
                "seen": list(seen),
            },
        )
        ranked = _Ranking(request.query, self._now(), row["previous_session_id"], self._fusion)
        return Recalled(
            summary=_summary(request, row["summary"]),
            rules=tuple(EntityView.model_validate(rule) for rule in row["rules"] or ()),
            entities=ranked.entities(row["entities"])[: request.max_entities],
            episodes=ranked.episodes(row["episodes"])[: request.max_episodes],
            tail=tuple(_turn(each) for each in strict_json.loads(row["tail"] or "[]")),
            forgotten=_forgotten(request, row["forgotten"]),
        )

    async def search(self, request: SearchRequest, vector: Vector | None, model: str) -> Recalled:
        """See `MemoryReader.search`."""
        row = await self._ask(
            request,
            SEARCH_MS,
            {
                **_asked(request.query, vector, model),
                "session_id": request.session_id,
                "previous_session_id": None,
                "project_id": request.project_id,
                "scope": request.scope.value if request.scope else None,
                "as_of": request.as_of,
                "entities": _pool(request.k) if "entities" in request.include else 0,
                "episodes": _pool(request.k) if "episodes" in request.include else 0,
                "unmatched": False,
                "with_session": False,
                "tail": 0,
                "seen": [],
            },
        )
        now = request.as_of or self._now()
        ranked = _Ranking(request.query, now, row["previous_session_id"], self._fusion)
        return Recalled(
            entities=ranked.entities(row["entities"])[: request.k],
            episodes=ranked.episodes(row["episodes"])[: request.k],
        )

    async def turn(self, session: SessionKey, turn_id: str) -> Turn | None:
        """See `MemoryReader.turn`."""
        query: Query = (
            """
            SELECT header::text, events::text
            FROM lamina.turns
            WHERE app = %(app)s AND user_id = %(user_id)s AND session_id = %(session_id)s
              AND turn_id = %(turn_id)s
            """,
            {**session.model_dump(), "turn_id": turn_id},
        )
        [rows] = await self._database.read(session.app, session.user_id, [query])
        return turn_of(rows[0]) if rows else None

    async def ping(self) -> None:
        """See `MemoryReader.ping`."""
        await self._database.ping()

    async def _ask(
        self, request: ContextRequest | SearchRequest, milliseconds: int, parameters: dict[str, Any]
    ) -> Row:
        timeout: Query = (
            "SELECT set_config('statement_timeout', %(milliseconds)s, true)",
            {"milliseconds": str(max(1, milliseconds))},
        )
        recall: Query = (
            _statement(),
            {"app": request.app, "user_id": request.user_id, **parameters},
        )
        _, [row] = await self._database.read(request.app, request.user_id, [timeout, recall])
        return row

    def _now(self) -> datetime:
        return self._clock.now() if self._clock else datetime.now(UTC)


class _Ranking:
    """Makes views of scored rows, best first."""

    def __init__(self, query: str, now: datetime, previous_session_id: str | None, fusion: str) -> None:
        self._now = now
        self._terms = frozenset(or_query(query))
        self._hint = time_hint(query, now)
        self._previous_session_id = previous_session_id
        self._fusion = fusion

    def entities(self, rows: Sequence[Row] | None) -> tuple[EntityView, ...]:
        views = [EntityView.model_validate(row) for row in rows or ()]
        return self._ranked(
            rows or (),
            views,
            [
                (view.session_id or "", view.said_by, view.said_at, view.kind is Kind.PREFERENCE, False)
                for view in views
            ],
        )

    def episodes(self, rows: Sequence[Row] | None) -> tuple[EpisodeView, ...]:
        views = [EpisodeView.model_validate(row) for row in rows or ()]
        traits = [
            (view.session_id, view.speaker, view.occurred_at, False, self._names(view.text)) for view in views
        ]
        return self._ranked(rows or (), views, traits)

    def _names(self, text: str) -> bool:
        """Whether the question names the one whose name leads the text (`[2026-01-05] name: …`)."""
        lead = _LEAD.match(text)
        name = set(or_query(lead[1])) - _EVERYBODY if lead else set[str]()
        return bool(name) and name <= self._terms

    def _ranked(
        self, rows: Sequence[Row], views: list[View], traits: list[tuple[str, Speaker, datetime, bool, bool]]
    ) -> tuple[View, ...]:
        if not rows:
            return ()
        candidates = [
            Candidate(row["words"], row["meaning"], *trait) for row, trait in zip(rows, traits, strict=True)
        ]
        order = rank(
            candidates,
            words=Scale(0.0, rows[0]["words_high"]),
            meaning=Scale(rows[0]["meaning_low"] or 0.0, rows[0]["meaning_high"] or 0.0),
            now=self._now,
            hint=self._hint,
            previous_session_id=self._previous_session_id,
            fusion=self._fusion,
        )
        return tuple(views[index].model_copy(update={"score": round(score, 4)}) for index, score in order)


def _asked(query: str, vector: Vector | None, model: str) -> dict[str, Any]:
    terms = or_query(query)
    return {
        "terms": list(terms),
        "any_term": websearch(terms),
        "vector": None if vector is None else str(vector),
        "model": model,
    }


def _pool(wanted: int) -> int:
    """How many rows of each list are ranked: enough that a row good in both lists is among them."""
    return max(50, 4 * wanted) if wanted else 0


def _summary(request: ContextRequest, text: str | None) -> Summary | None:
    if text is None:
        return None
    row = strict_json.loads(text)
    session = SessionKey(app=request.app, user_id=request.user_id, session_id=row["session_id"])
    summary = Summary.model_validate(
        {"session": session, "version": row["version"], "lines": row["lines"], "model": row["model"]}
    )
    return summary if row["session_id"] == request.session_id else summary.about(request.project_id)


def _forgotten(request: ContextRequest, rows: list[dict[str, Any]] | None) -> Tombstones:
    return Tombstones.of_rows(request.app, request.user_id, rows) if rows else Tombstones()


def _turn(row: dict[str, Any]) -> Turn:
    return Turn.model_validate({**row["header"], "events": row["events"]})


@cache
def _statement() -> LiteralString:
    text = files("lamina.postgres").joinpath("recall.sql").read_text("utf-8")
    return cast(LiteralString, text)  # a file of this package, as literal as the code beside it
