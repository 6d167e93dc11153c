"""Cuts a user's turns again, and makes the vectors that the new chunks need."""

from collections.abc import Callable

from lamina.model import EpisodeChunk, Turn
from lamina.postgres.rebuild_episodes import Held, PostgresRebuiltEpisodes
from lamina.postgres.shadows import Item, PostgresShadow, Unit
from lamina_services.rebuild.difference import Change, Difference
from lamina_services.rebuild.job import Progress, Vectors

Chunker = Callable[[Turn], tuple[EpisodeChunk, ...]]


class EpisodesJob:
    """See `Job`. A turn that comes out as it was, with vectors of the same embedder, is left alone."""

    def __init__(
        self, shadow: PostgresShadow, memory: PostgresRebuiltEpisodes, *, vectors: Vectors, cut: Chunker
    ) -> None:
        self._shadow = shadow
        self._memory = memory
        self._vectors = vectors
        self._cut = cut

    async def build(self, progress: Progress) -> None:
        """Cut and embed the turns that are missing, oldest first."""
        missing = await self._shadow.missing_turns()
        before = await self._shadow.count()
        total = before + len(missing)
        progress(before, total)
        for done, unit in enumerate(missing, before + 1):
            await self._make(unit)
            progress(done, total)

    async def difference(self) -> Difference:
        """How many chunks and vectors are made again."""
        items = await self._shadow.items(without="chunks")  # a user's whole text need not fit into memory
        changed = [item for item in items if item.result["changed"]]
        return Difference(
            counts={
                "turns": len(items),
                "turns_changed": len(changed),
                "chunks_before": sum(item.result["before"] for item in items),
                "chunks_after": sum(item.result["after"] for item in items),
                "vectors_made": sum(item.result["made"] for item in items),
            },
            changes=tuple(
                Change(
                    "changed",
                    f"{item.unit.session_id}/{item.unit.turn_id}",
                    f"{item.result['before']} chunks",
                    f"{item.result['after']} chunks, {item.result['made']} vectors made",
                )
                for item in changed
            ),
        )

    async def swap(self) -> None:
        """See `Job.swap`."""
        await self._memory.swap()

    async def finish(self) -> None:
        """Nothing comes after the swap."""

    async def _make(self, unit: Unit) -> None:
        turn = await self._shadow.turn(unit)
        if turn is None:
            return  # forgotten meanwhile
        held: Held = await self._memory.held(unit)
        chunks = self._cut(turn)
        before = len(held.chunks)
        result: dict[str, object] = {"before": before, "after": before, "made": 0, "changed": False}
        as_it_was = held.chunks == chunks and len(held.embedded) == len(chunks)
        if not (held.expired or as_it_was):
            texts = {chunk.text for chunk in chunks}
            await self._memory.adopt(
                unit,
                {
                    chunk.ordinal: chunk.text
                    for chunk in held.chunks
                    if chunk.ordinal in held.embedded and chunk.text in texts
                },
            )
            made = await self._vectors.make(chunk.text for chunk in chunks)
            cut = [chunk.model_dump(mode="json") for chunk in chunks]
            result |= {"after": len(chunks), "made": made, "changed": True, "chunks": cut}
        await self._shadow.put(Item(unit, result))
