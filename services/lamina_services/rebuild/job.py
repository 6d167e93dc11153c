"""What every stage of a rebuild does, and the course that all of them take."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from lamina.errors import StaleVersion
from lamina.ports import Embedder
from lamina.postgres.rebuilds import PostgresRebuilds, Rebuild
from lamina.postgres.shadows import PostgresShadow
from lamina_services.rebuild.difference import Difference
from lamina_services.rebuild.patience import Patience

SLICE = 32
"""Texts embedded, and kept, together."""
ROUNDS = 20
"""How often what came meanwhile is caught up with before a swap is given up."""

Progress = Callable[[int, int], None]
"""Told how many units are done, and of how many."""


class Job(Protocol):
    """One stage of one user's memory, made again."""

    async def build(self, progress: Progress) -> None:
        """Make what is not in the shadow yet; each unit is kept at once."""
        ...

    async def difference(self) -> Difference:
        """What a swap would change."""
        ...

    async def swap(self) -> None:
        """Put the shadow in memory's place. StaleVersion where there is more to build first."""
        ...

    async def finish(self) -> None:
        """What comes after a swap. Does no harm without one, and can be repeated."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How far a rebuild has come."""

    rebuild: Rebuild
    difference: Difference
    swapped: bool


async def run(
    rebuilds: PostgresRebuilds, rebuild: Rebuild, job: Job, *, swap: bool, progress: Progress
) -> Outcome:
    """Build what is missing and tell the difference; swap where that is wanted."""
    if swap:
        await job.finish()  # of an earlier one that was interrupted behind its swap
    for _ in range(ROUNDS):
        await job.build(progress)
        difference = await job.difference()
        await rebuilds.ready(rebuild, difference.counts)
        if not swap:
            return Outcome(rebuild, difference, swapped=False)
        try:
            await job.swap()
        except StaleVersion:
            continue
        await job.finish()
        return Outcome(rebuild, difference, swapped=True)
    raise StaleVersion("turns come faster than they are made again; what was made is kept: run it once more")


@dataclass
class Vectors:
    """Keeps the vectors that the new memory needs."""

    shadow: PostgresShadow
    embedder: Embedder
    patience: Patience = field(default_factory=Patience)

    async def make(self, texts: Iterable[str]) -> int:
        """Embed those of the texts that have none, a slice at a time. Gives how many those were."""
        missing = await self.shadow.without_vector(texts)
        for start in range(0, len(missing), SLICE):
            some = missing[start : start + SLICE]
            vectors = await self.patience.ask(lambda some=some: self.embedder.documents(some))
            await self.shadow.put_vectors(dict(zip(some, vectors, strict=True)))
        return len(missing)
