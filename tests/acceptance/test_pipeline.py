"""Many turns of many users through the topic: every one arrives, once, equal, and through all stages."""

from collections.abc import AsyncGenerator

import psycopg
import pytest

from lamina.client import TurnPublisher
from lamina.model import Turn
from lamina_services.bench.ingest import run
from lamina_services.bench.synthetic import synthetic_turns
from lamina_services.cli.demo.player import ENVIRONMENT
from lamina_services.local.stack import Stack
from tests.strategies import NASTY


@pytest.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stack]:
    home = tmp_path_factory.mktemp("pipeline")
    async with Stack(home, env={**ENVIRONMENT, "LAMINA_MODEL": "offline"}, preferred_ports=False) as running:
        yield running


def wild_turns(app: str) -> list[Turn]:
    """Turns with every kind of part, and text that stores like to lose."""
    call = {"id": "c1", "name": "look", "args": {"at": NASTY, "big": 10**30, "small": 2.5e-300}}
    answer = {"id": "c1", "name": "look", "response": {"rows": [{"text": text} for text in NASTY]}}
    image = {"mime_type": "image/png", "data": "iVBORw0KGgo="}
    return [
        Turn.model_validate(
            {
                "app": app,
                "user_id": f"user {number} ñ 支 {{*}} '\"",
                "session_id": "s/1 {x}",
                "turn_id": f"t{number}",
                "occurred_at": f"2026-01-05T10:00:{number:02}Z",
                "a_field_of_a_later_version": {"kept": None},
                "events": [
                    {"author": "user", "content": {"role": "user", "parts": [{"text": text}]}},
                    {
                        "author": "agent",
                        "content": {"parts": [{"function_call": call, "thought_signature": "AAE_-w=="}]},
                        "long_running_tool_ids": ["c1"],
                    },
                    {
                        "author": "agent",
                        "content": {"parts": [{"function_response": answer}, {"inline_data": image}]},
                        "actions": {"state_delta": {"app:x": text, "gone": None}},
                    },
                ],
            }
        )
        for number, text in enumerate(NASTY)
    ]


async def test_what_is_published_arrives_once_and_equal_through_every_stage(stack: Stack) -> None:
    app = "acceptance"
    turns = [*synthetic_turns(60, 6, run=app), *wild_turns(app)]
    async with TurnPublisher.connect(stack.state.project, emulator=stack.state.pubsub) as publisher:
        for turn in turns[::7]:
            await publisher.publish(turn)
        report = await run(turns, publisher, stack.state.database_url, timeout_s=60)
    assert (report.missing, report.repeated, report.differing) == (0, 0, 0)
    assert report.rows["chunks without vector"] == 0
    assert await _repeated_rows(stack.state.database_url, app) == 0


async def _repeated_rows(url: str, app: str) -> int:
    """Statements that one turn says twice, and turns that two summaries cover."""
    async with await psycopg.AsyncConnection.connect(url) as db:
        cursor = await db.execute(
            """
            SELECT count(*) FROM (
                SELECT 1 FROM lamina.statements WHERE app = %(app)s
                GROUP BY user_id, session_id, turn_id, scope, owner, subject, text HAVING count(*) > 1
                UNION ALL
                SELECT 1 FROM lamina.entities WHERE app = %(app)s AND valid_to IS NULL
                GROUP BY user_id, scope, owner, subject HAVING count(*) > 1
            ) AS repeated
            """,
            {"app": app},
        )
        row = await cursor.fetchone()
    return row[0] if row else -1
