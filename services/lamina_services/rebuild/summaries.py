"""Summarises a user's sessions again, from the turns that their summaries cover."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lamina.errors import Permanent, StaleVersion
from lamina.model import SummaryLine
from lamina.ports import Buffer, LanguageModel, TokenCounter
from lamina.postgres.rebuild_summaries import CoveredTurn, PostgresRebuiltSummaries, Remade, Session
from lamina.postgres.rebuilds import Rebuild
from lamina.postgres.shadows import Item, PostgresShadow, Unit
from lamina.settings import Settings
from lamina_services.rebuild.difference import Change, Difference, Refusal, counted, of_lines
from lamina_services.rebuild.job import Progress
from lamina_services.rebuild.patience import REFUSALS, Patience
from lamina_services.rebuild.steps import Covered, ancestors, in_lineage_order, steps_of
from lamina_services.summarizer.decision import BATCH, sizes_of
from lamina_services.summarizer.folding import fold


@dataclass
class Folding:
    """How far a session has come: kept after each step."""

    version: int
    lines: tuple[SummaryLine, ...] = ()
    left: list[list[str]] = field(default_factory=list[list[str]])
    """The steps that are still to do."""
    done: list[str] = field(default_factory=list[str])
    taken: list[str] = field(default_factory=list[str])
    """Had been set aside, and are in the lines now."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Turns that the model would not take, and why."""

    def to_json(self) -> dict[str, Any]:
        """As the shadow keeps it."""
        return {**self.__dict__, "lines": [line.model_dump(mode="json") for line in self.lines]}

    @classmethod
    def of(cls, item: Item) -> "Folding":
        """As the shadow kept it."""
        kept = item.result
        lines = tuple(SummaryLine.model_validate(line) for line in kept["lines"])
        return cls(kept["version"], lines, kept["left"], kept["done"], kept["taken"], kept["refused"])


class SummariesJob:
    """See `Job`. The unit is one step of one session: as many turns as a summary once took over."""

    def __init__(
        self,
        rebuild: Rebuild,
        shadow: PostgresShadow,
        memory: PostgresRebuiltSummaries,
        *,
        buffer: Buffer,
        model: LanguageModel,
        tokens: TokenCounter,
        settings: Settings,
        patience: Patience,
    ) -> None:
        self._rebuild = rebuild
        self._shadow = shadow
        self._memory = memory
        self._buffer = buffer
        self._model = model
        self._tokens = tokens
        self._settings = settings
        self._patience = patience

    async def build(self, progress: Progress) -> None:
        """Fold each session's turns, those that others follow first."""
        sessions = {session.session_id: session for session in await self._memory.sessions()}
        previous = {name: session.previous_session_id for name, session in sessions.items()}
        only = self._rebuild.session_id
        wanted = [name for name, each in sessions.items() if each.version and only in (None, name)]
        items = {item.unit.session_id: item for item in await self._shadow.items()}
        for done, name in enumerate(in_lineage_order(wanted, previous)):
            progress(done, len(wanted))
            item = items.get(name)
            if item is not None and item.refused is not None:
                continue
            folding = Folding.of(item) if item else await self._begin(sessions, name, previous, items)
            items[name] = await self._fold(name, await self._caught_up(name, folding))
        progress(len(wanted), len(wanted))

    async def difference(self) -> Difference:
        """The lines that would go, and those that would come."""
        changes: list[Change] = []
        refused: list[Refusal] = []
        turns = taken = 0
        items = await self._shadow.items()
        for item in items:
            name = item.unit.session_id
            if item.refused is not None:
                refused.append(Refusal(name, "", item.refused))
                continue
            folding = Folding.of(item)
            turns += len(folding.done)
            taken += len(folding.taken)
            refused += (Refusal(name, turn_id, why) for turn_id, why in folding.refused.items())
            changes += of_lines(name, (await self._memory.latest(name)).lines, folding.lines)
        return Difference(
            counts={
                "sessions": len(items),
                "turns": turns,
                "refused": len(refused),
                "taken": taken,
                **counted(changes),
            },
            changes=tuple(changes),
            refused=tuple(refused),
        )

    async def swap(self) -> None:
        """See `Job.swap`."""
        foldings = {
            item.unit.session_id: Folding.of(item)
            for item in await self._shadow.items()
            if item.refused is None
        }
        if any(folding.left for folding in foldings.values()):  # another command on this rebuild lags behind
            raise StaleVersion("a session is not done yet")
        await self._memory.swap(
            [
                Remade(name, folding.version, folding.lines, tuple(folding.taken))
                for name, folding in foldings.items()
            ]
        )

    async def finish(self) -> None:
        """Move the cached summaries on. Until then readers take the stored one: it is of a later version."""
        for session in await self._memory.unfinished():
            if (await self._buffer.read(session, last=0)).summary is not None:
                latest = await self._memory.latest(session.session_id)
                await self._buffer.trim(session, [], latest)
        await self._memory.finish()

    async def _begin(
        self,
        sessions: Mapping[str, Session],
        name: str,
        previous: Mapping[str, str | None],
        items: Mapping[str, Item],
    ) -> Folding:
        """What the session inherits: from the nearest one before it that has a summary, remade or not."""
        for before in ancestors(name, previous):
            item = items.get(before)
            inherited = await self._memory.latest(before)
            if inherited.version == 0:
                continue
            if item is not None and item.refused is None:
                inherited = inherited.model_copy(update={"lines": Folding.of(item).lines})
            session = self._rebuild.session(name)
            return Folding(0, inherited.inherited_by(session, sessions[name].project_id).lines)
        return Folding(0)

    async def _caught_up(self, name: str, folding: Folding) -> Folding:
        """With steps for what the session's summary has come to cover since."""
        version, covered = await self._memory.covered(name)
        if version == folding.version:
            return folding
        # What was refused here, and the summarizer has taken since, is asked about once more.
        said = {line.turn_id for line in folding.lines}
        again = folding.refused.keys() & {turn.turn_id for turn in covered if not turn.set_aside} - said
        folding.done = [turn_id for turn_id in folding.done if turn_id not in again]
        folding.refused = {name: why for name, why in folding.refused.items() if name not in again}
        seen = {*folding.done, *(turn_id for step in folding.left for turn_id in step)}
        new = [turn for turn in covered if turn.turn_id not in seen]
        turns = await self._memory.turns(name, [turn.turn_id for turn in new])
        steps = steps_of(map(_covered, new), sizes_of(turns, self._tokens), self._limit)
        folding.version, folding.left = version, [*folding.left, *steps]
        return folding

    @property
    def _limit(self) -> int:
        return BATCH * self._settings.summary_trigger_tokens

    async def _fold(self, name: str, folding: Folding) -> Item:
        """Do the steps that are left. The shadow keeps each."""
        _, covered = await self._memory.covered(name)
        aside = {turn.turn_id for turn in covered if turn.set_aside}
        stored: Sequence[SummaryLine] | None = None
        tombstones = await self._shadow.tombstones()
        while folding.left:
            step = folding.left[0]
            turns = await self._memory.turns(name, step)
            try:
                made = await self._patience.ask(
                    lambda turns=turns: fold(
                        folding.lines, turns, model=self._model, budget=self._settings.summary_budget_tokens
                    )
                )
            except REFUSALS as error:
                return await self._give_up(name, folding, error)
            folding.lines = tombstones.kept_lines(made.lines)
            gone = {turn.turn_id: error for turn, error in made.refused}
            if lost := gone.keys() - aside:
                stored = stored or (await self._memory.latest(name)).lines
                folding.lines = _with_lines_of(stored, lost, folding.lines)
            folding.refused |= {turn_id: f"{type(why).__name__}: {why}" for turn_id, why in gone.items()}
            folding.taken += [turn_id for turn_id in step if turn_id in aside and turn_id not in gone]
            folding.done += step
            folding.left = folding.left[1:]
            await self._shadow.put(Item(Unit(name), folding.to_json()))
        item = Item(Unit(name), folding.to_json())
        await self._shadow.put(item)
        return item

    async def _give_up(self, name: str, folding: Folding, error: Permanent) -> Item:
        """The model refused every turn of a step: the fault is not in one of them. The session stays."""
        item = Item(Unit(name), folding.to_json(), f"{type(error).__name__}: {error}")
        await self._shadow.put(item)
        return item


def _covered(turn: CoveredTurn) -> Covered:
    return Covered(turn.turn_id, turn.occurred_at, turn.version, turn.set_aside)


def _with_lines_of(
    stored: Sequence[SummaryLine], turn_ids: set[str], lines: tuple[SummaryLine, ...]
) -> tuple[SummaryLine, ...]:
    """The lines, with those that the memory in use has of these turns."""
    said = {(line.kind, line.text) for line in lines}
    kept = [line for line in stored if line.turn_id in turn_ids and (line.kind, line.text) not in said]
    return (*lines, *kept)
