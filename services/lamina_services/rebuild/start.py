"""Puts a rebuild together from a deployment's parts."""

from lamina.errors import Transient
from lamina.ports import Buffer
from lamina.postgres.database import Database
from lamina.postgres.rebuild_entities import PostgresRebuiltEntities
from lamina.postgres.rebuild_episodes import PostgresRebuiltEpisodes
from lamina.postgres.rebuild_summaries import PostgresRebuiltSummaries
from lamina.postgres.rebuilds import PostgresRebuilds, Rebuild, RebuildStage
from lamina.postgres.shadows import PostgresShadow
from lamina.wiring import Wiring
from lamina_services.episodic_embedder.decision import CHUNKER, chunks_of
from lamina_services.rebuild.entities import EntitiesJob
from lamina_services.rebuild.episodes import EpisodesJob
from lamina_services.rebuild.job import Job, Outcome, Progress, Vectors, run
from lamina_services.rebuild.patience import Patience
from lamina_services.rebuild.summaries import SummariesJob


async def rebuild(
    app: str,
    user_id: str,
    stage: RebuildStage,
    session_id: str | None,
    *,
    database: Database,
    buffer: Buffer,
    parts: Wiring,
    swap: bool,
    progress: Progress,
    only_vectors: bool = False,
    patience: Patience | None = None,
) -> Outcome:
    """Open or resume the user's rebuild and take it to its end, or (without `swap`) to just before.

    `only_vectors`: leave what entities say as it is, and ask the embedder alone.
    Transient where a dependency failed for good: what was made is kept, and the same call goes on from there.
    """
    rebuilds = PostgresRebuilds(database)
    maker = "" if only_vectors else CHUNKER if stage == "episodes" else parts.model.name
    embedder = "" if stage == "summaries" else parts.embedder.name
    opened = await rebuilds.open(app, user_id, stage, session_id, maker=maker, embedder=embedder)
    job = job_of(opened, database, buffer, parts, patience or Patience())
    try:
        return await run(rebuilds, opened, job, swap=swap, progress=progress)
    except Transient as error:
        raise Transient(f"{error}; what was made is kept: run the command again to go on") from error


def job_of(opened: Rebuild, database: Database, buffer: Buffer, parts: Wiring, patience: Patience) -> Job:
    """The job of a rebuild's stage."""
    shadow = PostgresShadow(database, opened)
    match opened.stage:
        case "entities":
            return EntitiesJob(
                opened,
                shadow,
                PostgresRebuiltEntities(database, opened),
                model=parts.model,
                vectors=Vectors(shadow, parts.embedder, patience),
                patience=patience,
            )
        case "episodes":
            return EpisodesJob(
                shadow,
                PostgresRebuiltEpisodes(database, opened),
                vectors=Vectors(shadow, parts.embedder, patience),
                cut=chunks_of,
            )
        case "summaries":
            return SummariesJob(
                opened,
                shadow,
                PostgresRebuiltSummaries(database, opened),
                buffer=buffer,
                model=parts.model,
                tokens=parts.tokens,
                settings=parts.settings,
                patience=patience,
            )
