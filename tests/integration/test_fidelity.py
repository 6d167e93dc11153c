"""What goes in comes out equal: over a topic, through Valkey, over another topic, into AlloyDB, and back."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.envelope import decode_request, encode, parse
from lamina.events import TurnPublished, TurnRecorded
from lamina.ports import Message
from lamina.postgres.episodes import PostgresEpisodes
from lamina.postgres.reader import PostgresReader
from lamina.testing.publisher import InMemoryPublisher
from lamina.turns import complete_turn
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import connect
from lamina_services.episodic_embedder.decision import chunks_of
from lamina_services.turn_ingest.decision import published
from lamina_services.turn_ingest.handler import ingest
from tests.fixtures_postgres import TestDatabase
from tests.fixtures_valkey import valkey_url
from tests.strategies import json_values, turns

__all__ = ["valkey_url"]


@dataclass
class Journey:
    """Every store on the way, each as the service that uses it."""

    buffer: ValkeyBuffer
    log: PostgresEpisodes
    reader: PostgresReader

    async def travel(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        """The turn as JSON, read back at each stop."""
        sent = encode(TurnPublished(turn=complete_turn(value)))
        topic = InMemoryPublisher()
        await ingest(published(_pushed(sent)).turn, buffer=self.buffer, publisher=topic)
        (recorded,) = topic.published
        arrived = parse(_pushed(encode(recorded)))
        assert isinstance(arrived, TurnRecorded)
        turn = arrived.turn
        await self.log.record(turn, chunks_of(turn))
        logged = await self.reader.turn(turn.session, turn.turn_id)
        assert logged is not None
        (held,) = (await self.buffer.read(turn.session)).turns
        return [turn.to_json(), held.to_json(), logged.to_json()]


def _pushed(message: Message) -> Any:
    return decode_request({**message.attributes, "x-goog-pubsub-message-id": "1"}, message.data)


@pytest_asyncio.fixture(loop_scope="session")
async def journey(valkey_url: str, memory_database: TestDatabase) -> AsyncIterator[Journey]:
    client = connect(valkey_url)
    async with (
        memory_database.open("lamina_episodic_embedder", size=2) as embedder,
        memory_database.open("lamina_context", size=2) as context,
    ):
        yield Journey(ValkeyBuffer(client, 600), PostgresEpisodes(embedder), PostgresReader(context))
    await client.aclose()


@given(
    value=turns(),
    later=st.dictionaries(st.sampled_from(["of_a_later_version", "x"]), json_values, max_size=2),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_turn_comes_back_as_it_was_from_every_store(
    journey: Journey, value: dict[str, Any], later: dict[str, Any]
) -> None:
    turn = {**later, **value, "session_id": str(uuid.uuid4())}
    for read_back in await journey.travel(turn):
        assert read_back == turn
