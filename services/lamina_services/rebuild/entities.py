"""Extracts a user's turns again, and derives the entities from that."""

from collections.abc import Iterable, Mapping

from lamina.model import Entity, Statement
from lamina.ports import LanguageModel
from lamina.postgres.entities import text_to_embed
from lamina.postgres.rebuild_entities import PostgresRebuiltEntities, statements_in
from lamina.postgres.rebuilds import Rebuild
from lamina.postgres.shadows import Item, PostgresShadow, Unit
from lamina.reconcile import entities_of
from lamina_services.entity_extractor.decision import admissible
from lamina_services.rebuild.difference import Difference, Refusal, counted, of_entities
from lamina_services.rebuild.job import SLICE, Progress, Vectors
from lamina_services.rebuild.known import Known
from lamina_services.rebuild.patience import REFUSALS, Patience, Refusals


class EntitiesJob:
    """See `Job`. The model is shown what it was shown when the turn was new: what earlier turns had said."""

    def __init__(
        self,
        rebuild: Rebuild,
        shadow: PostgresShadow,
        memory: PostgresRebuiltEntities,
        *,
        model: LanguageModel,
        vectors: Vectors,
        patience: Patience,
    ) -> None:
        self._rebuild = rebuild
        self._shadow = shadow
        self._memory = memory
        self._model = model
        self._vectors = vectors
        self._patience = patience
        self._made = 0

    async def build(self, progress: Progress) -> None:
        """Extract the turns that are missing, oldest first; then make the vectors that are."""
        if self._rebuild.maker:
            await self._extract(progress)
        held, embedded = await self._memory.entities()
        stays = {
            (entity.entity_id, entity.statement.text)
            for entity in held
            if entity.entity_id in embedded or not self._concerns(entity)
        }
        self._made += await self._vectors.make(
            text_to_embed(entity.statement.subject, entity.statement.text)
            for entity in await self._after()
            if (entity.entity_id, entity.statement.text) not in stays
        )

    async def difference(self) -> Difference:
        """What would hold, against what holds."""
        before, _ = await self._memory.entities()
        items = await self._shadow.items()
        after = await self._after()
        changes = of_entities(before, after)
        return Difference(
            counts={
                "turns": len(items),
                "refused": sum(item.refused is not None for item in items),
                "entities_before": len(before),
                "entities_after": len(after),
                **counted(changes),
                "vectors_made": self._made,
            },
            changes=changes,
            refused=tuple(
                Refusal(item.unit.session_id, item.unit.turn_id, item.refused)
                for item in items
                if item.refused is not None
            ),
        )

    async def swap(self) -> None:
        """See `Job.swap`."""
        await self._memory.swap()

    async def finish(self) -> None:
        """Embed what else the derivation brought about: a statement that came just before the swap."""
        dark = list((await self._memory.dark()).items())
        for start in range(0, len(dark), SLICE):
            ids, texts = zip(*dark[start : start + SLICE], strict=True)
            vectors = await self._patience.ask(lambda texts=texts: self._vectors.embedder.documents(texts))
            await self._memory.embed(dict(zip(ids, vectors, strict=True)))

    def _concerns(self, entity: Entity) -> bool:
        return self._rebuild.session_id in (None, entity.statement.session_id)

    async def _extract(self, progress: Progress) -> None:
        missing = await self._shadow.missing_turns()
        tombstones = await self._shadow.tombstones()
        items = await self._shadow.items()
        known = Known(self._rebuild.app, self._rebuild.user_id)
        held = await self._memory.statements()
        replaced = {item.unit for item in items if item.refused is None}
        # What stays as it is was known as well; what the missing turns say now is not known yet.
        staying = _in_order(held, replaced | set(missing))
        known.learn(said for item in items for said in statements_in(item))
        refusals = Refusals()
        total = len(items) + len(missing)
        progress(len(items), total)
        for done, unit in enumerate(missing, len(items) + 1):
            turn = await self._shadow.turn(unit)
            if turn is None:
                continue  # forgotten meanwhile
            while staying and staying[-1].said_at <= turn.occurred_at:
                known.learn([staying.pop()])
            before = known.before(turn)
            try:
                answer = await self._patience.ask(
                    lambda turn=turn, before=before: self._model.extract(turn, before)
                )
            except REFUSALS as error:
                refusals.one_more(error)
                await self._shadow.put(Item(unit, [], f"{type(error).__name__}: {error}"))
                known.learn(held.get(unit, ()))
            else:
                refusals.none()
                said = tombstones.kept_statements(admissible(answer, turn))
                await self._shadow.put(Item(unit, [each.model_dump(mode="json") for each in said]))
                known.learn(said)
            progress(done, total)

    async def _after(self) -> tuple[Entity, ...]:
        """The entities as a swap would derive them."""
        held = await self._memory.statements()
        made = {item.unit: statements_in(item) for item in await self._shadow.items() if item.refused is None}
        kept = {unit: said for unit, said in held.items() if unit not in made}
        said = [each for statements in (*kept.values(), *made.values()) for each in statements]
        return entities_of(self._rebuild.app, self._rebuild.user_id, said)


def _in_order(held: Mapping[Unit, Iterable[Statement]], without: set[Unit]) -> list[Statement]:
    """The statements of the other turns, the latest first."""
    staying = [said for unit, each in held.items() if unit not in without for said in each]
    return sorted(staying, key=lambda said: said.order, reverse=True)
