"""One command brings back what a compaction archived."""

import asyncio
import json
import os
import sys
import uuid
from datetime import timedelta
from typing import Any

from lamina.events import CompactionRequested
from lamina.model import SummaryLine
from lamina.ports import Consolidation
from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.database import Database
from lamina.postgres.episodes import PostgresEpisodes
from lamina.settings import Settings
from tests.builders import APP, BEGAN, a_chunk, a_turn, a_user
from tests.fixtures_postgres import TestDatabase


async def lamina(database: TestDatabase, *words: str) -> tuple[int | None, Any, str]:
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lamina_services.cli.main", *words, "--app", APP, "--json"),
        env={**os.environ, "LAMINA_DATABASE_URL": database.owner},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await command.communicate()
    return command.returncode, json.loads(printed) if printed else None, said.decode()


async def test_a_compaction_is_listed_undone_and_then_shown_as_undone(memory_database: TestDatabase) -> None:
    user = a_user()
    owner = Database(memory_database.owner)
    await PostgresEpisodes(owner).record(a_turn(user), [a_chunk(0, "long ago"), a_chunk(1, "so it was")])
    compactions = PostgresCompactions(owner, Settings())
    request = CompactionRequested(app=APP, user_id=user, before=BEGAN + timedelta(days=1))
    batch = await compactions.batch(request, 10)
    line = SummaryLine(kind="digest", text="It was long ago.", turn_id="t1", at=BEGAN)
    covers = tuple(episode.episode_id for episode in batch.episodes)
    made = await compactions.apply(request, Consolidation((line,), covers, "test"), uuid.uuid4())
    await owner.close()

    _, [listed], _ = await lamina(memory_database, "undo", "--user", user)
    assert (listed["compaction_id"], listed["episodes"], listed["undone_at"]) == (str(made), 2, None)
    code, undone, _ = await lamina(memory_database, "undo", str(made), "--user", user)
    assert (code, undone["brought_back"]) == (0, 2)
    _, [after], _ = await lamina(memory_database, "undo", "--user", user)
    assert after["undone_at"] is not None


async def test_another_users_compaction_is_not_there_to_undo(memory_database: TestDatabase) -> None:
    code, printed, said = await lamina(memory_database, "undo", str(uuid.uuid4()), "--user", a_user())
    assert (code, printed) == (1, None)
    assert said.startswith("lamina: there is no compaction")
