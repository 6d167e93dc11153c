"""A user's memory made by the pipeline, and rebuilds of it as an operator runs them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest_asyncio

from lamina.api import EntityView
from lamina.events import TurnRecorded
from lamina.model import Statement, SummaryLine, Turn
from lamina.models.offline import OfflineModel
from lamina.ports import OldEpisode
from lamina.postgres.database import Database
from lamina.postgres.rebuilds import PostgresRebuilds, Rebuild, RebuildStage
from lamina.testing.clock import StoppedClock
from lamina.testing.models import HashEmbedder
from lamina.wiring import Wiring
from lamina_services.rebuild.job import Outcome, Progress
from lamina_services.rebuild.patience import Patience
from lamina_services.rebuild.start import rebuild
from lamina_services.summarizer.handler import on_turn_recorded as summarise
from tests.builders import APP, BEGAN, a_turn, a_user
from tests.fixtures_postgres import TestDatabase
from tests.fundamentals.pipeline import Pipeline

Row = dict[str, Any]
STAGES: tuple[RebuildStage, ...] = ("entities", "episodes", "summaries")

SAID = (
    "We use tabs for indentation.",
    "I prefer dark mode. Never deploy on Fridays.",
    "From now on we use spaces for indentation.",
    "The release of the parser is planned for spring, and the lexer comes first.",
    "I prefer light mode now.",
    "We decided to use PostgreSQL as the database.",
    "My favourite editor is Vim.",
    "Please answer in short sentences.",
)


class Killed(BaseException):
    """Stands for a SIGKILL: nothing catches it."""


Hook = Callable[[Turn], Any]


@dataclass
class Model:
    """The offline model under another name, which may also be of another opinion. Counts what it is asked."""

    name: str = "offline/1"
    loud: bool = False
    """Says everything in capitals."""
    before: Hook = lambda _: None
    """Called with each turn before it is taken; may raise."""
    asked: list[str] = field(default_factory=list[str])
    """Ids of the turns, as often as they were taken."""
    offline: OfflineModel = field(default_factory=OfflineModel)

    async def extract(self, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
        await self._ask([turn])
        said = await self.offline.extract(turn, known)
        return (
            tuple(each.model_copy(update={"text": each.text.upper()}) for each in said) if self.loud else said
        )

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        await self._ask(turns)
        if not self.loud:
            return await self.offline.summarise(previous, turns, budget)
        made = [
            SummaryLine(kind="digest", text=f"{turn.turn_id}!", turn_id=turn.turn_id, at=turn.occurred_at)
            for turn in turns
        ]
        return (*previous, *made)

    async def consolidate(self, episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
        return await self.offline.consolidate(episodes, budget)

    async def _ask(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            result = self.before(turn)
            if asyncio.iscoroutine(result):
                await result
            self.asked.append(turn.turn_id)


def story(user: str, count: int = len(SAID)) -> list[Turn]:
    """Two sessions, the second of which follows the first."""
    return [
        a_turn(
            user,
            number,
            session="s1" if number < 5 else "s2",
            previous_session_id="s1" if number == 5 else None,
            project_id="shop" if number % 2 else None,
            user=SAID[number],
            assistant=f"Very well, that is noted as number {number}.",
        )
        for number in range(count)
    ]


def silent(_done: int, _total: int) -> None:
    """Shows no progress."""


@dataclass
class World:
    """The pipeline that makes memory, and an operator who has it made again."""

    pipeline: Pipeline
    operator: Database

    async def remember(self, turns: Sequence[Turn], model: Any = None) -> None:
        """Publish the turns in this order, and let the services do the rest."""
        self.pipeline.model = model or OfflineModel()
        self.pipeline.topic.published.clear()  # else each run delivers all that there ever was
        for turn in turns:
            await self.pipeline.agent.publish(turn)
        await self.pipeline.run()

    async def a_user_with_memory(self, model: Any = None) -> str:
        user = a_user()
        await self.remember(story(user), model)
        return user

    async def summarise(self, turn: Turn, model: Any) -> None:
        """Deliver the turn to the summarizer alone."""
        pipeline = self.pipeline
        await summarise(
            TurnRecorded(turn=turn),
            buffer=pipeline.buffer,
            summaries=pipeline.summaries,
            model=model,
            publisher=pipeline.topic,
            tokens=pipeline.tokens,
            clock=StoppedClock(BEGAN),
            settings=pipeline.settings,
        )

    async def rebuild(
        self,
        user: str,
        stage: RebuildStage,
        model: Any = None,
        *,
        swap: bool = True,
        session: str | None = None,
        embedder: Any = None,
        progress: Progress = silent,
        only_vectors: bool = False,
    ) -> Outcome:
        parts = Wiring(self.pipeline.settings)
        parts.model = model or Model()
        parts.embedder = embedder or HashEmbedder()
        return await rebuild(
            APP,
            user,
            stage,
            session,
            database=self.operator,
            buffer=self.pipeline.buffer,
            parts=parts,
            swap=swap,
            progress=progress,
            only_vectors=only_vectors,
            patience=Patience([0.0, 0.0]),
        )

    async def open_rebuild(self, user: str, stage: RebuildStage) -> Rebuild | None:
        return await PostgresRebuilds(self.operator).find(APP, user, stage)

    async def rows(self, user: str) -> dict[str, list[Row]]:
        """Every row of the user's memory, to the last column."""
        return {
            "statements": await self._all(
                user,
                """
                SELECT * FROM lamina.statements WHERE user_id = %(user)s
                ORDER BY session_id, turn_id, ordinal
                """,
            ),
            "entities": await self._all(
                user, "SELECT * FROM lamina.entities WHERE user_id = %(user)s ORDER BY entity_id"
            ),
            "episodes": await self._all(
                user,
                """
                SELECT * FROM lamina.episodes WHERE user_id = %(user)s
                ORDER BY session_id, turn_id, ordinal
                """,
            ),
            "summaries": await self._all(
                user,
                """
                SELECT session_id, version, lines::text, model, event_id, created_at
                FROM lamina.summaries WHERE user_id = %(user)s ORDER BY session_id, version
                """,
            ),
            "summary_turns": await self._all(
                user,
                "SELECT * FROM lamina.summary_turns WHERE user_id = %(user)s ORDER BY session_id, turn_id",
            ),
            "compaction_episodes": await self._all(
                user,
                """
                SELECT * FROM lamina.compaction_episodes WHERE user_id = %(user)s
                ORDER BY compaction_id, episode_id
                """,
            ),
        }

    async def what(self, user: str) -> dict[str, list[tuple[Any, ...]]]:
        """The same without what differs between two users who said the same: ids and times of writing."""
        rows = await self.rows(user)
        return {
            "statements": _only(
                rows["statements"],
                "session_id turn_id ordinal scope owner kind subject text said_at extractor",
            ),
            "entities": sorted(
                _only(
                    rows["entities"],
                    "scope owner subject valid_from valid_to kind text said_by sources last_said_at search "
                    "embedding embedding_model extractor",
                ),
                key=str,
            ),
            "episodes": _only(
                rows["episodes"],
                "session_id turn_id ordinal text speaker search embedding embedding_model chunker",
            ),
            "summaries": _only(_latest(rows["summaries"]), "session_id lines model"),
            "summary_turns": _only(rows["summary_turns"], "session_id turn_id set_aside"),
        }

    async def shadow(self, user: str) -> int:
        """How many rows of the user's are in a shadow."""
        [row] = await self._all(
            user,
            """
            SELECT (SELECT count(*) FROM lamina.rebuild_items WHERE user_id = %(user)s)
                 + (SELECT count(*) FROM lamina.rebuild_vectors WHERE user_id = %(user)s) AS n
            """,
        )
        return row["n"]

    async def _all(self, user: str, query: Any) -> list[Row]:
        async with self.operator.as_user(APP, user) as conn:
            return await (await conn.execute(query, {"user": user})).fetchall()


def _only(rows: Sequence[Row], names: str) -> list[tuple[Any, ...]]:
    return [tuple(str(row[name]) for name in names.split()) for row in rows]


def _latest(summaries: Sequence[Row]) -> list[Row]:
    return list({row["session_id"]: row for row in summaries}.values())


@pytest_asyncio.fixture(loop_scope="session")
async def world(memory_database: TestDatabase) -> AsyncIterator[World]:
    owner = Database(memory_database.owner)
    async with memory_database.open("lamina_operator") as operator:
        yield World(Pipeline(owner), operator)
    await owner.close()
