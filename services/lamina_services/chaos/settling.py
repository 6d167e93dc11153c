"""Brings every session to the same end: all but its latest turn are covered by its summary."""

import asyncio
from collections.abc import Iterable

from lamina.events import TurnRecorded
from lamina.model import SessionKey, Turn
from lamina.models.offline import OfflineModel
from lamina.models.tokens import EstimatedTokens
from lamina.postgres.database import Database
from lamina.postgres.summaries import PostgresSummaries
from lamina.pubsub.clients import publisher_client
from lamina.pubsub.publisher import PubSubPublisher
from lamina.settings import Settings
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.client import connect
from lamina.wiring import SystemClock
from lamina_services.chaos.model import Chance, FlakyModel
from lamina_services.local.home import StackState
from lamina_services.summarizer.handler import on_turn_recorded

_AT_ONCE = 4


async def settle(state: StackState, turns: Iterable[Turn]) -> None:
    """Run the summarizer's own handler on each session, on the stack's own stores, until it is idle.

    What a running stack has summarised depends on the order of arrival; from here on nothing does.
    """
    latest: dict[SessionKey, Turn] = {}
    for turn in turns:
        latest[turn.session] = max(turn, latest.get(turn.session, turn), key=lambda each: each.order)
    client, database = connect(state.valkey_url), Database(state.database_url, size=_AT_ONCE)
    settings = Settings.load().model_copy(update={"summary_trigger_turns": 2, "summary_keep_turns": 1})
    publisher = PubSubPublisher(publisher_client(state.pubsub), state.project)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(turn: Turn) -> None:
        async with gate:
            await on_turn_recorded(
                TurnRecorded(turn=turn),
                buffer=ValkeyBuffer(client, settings.buffer_ttl_s),
                summaries=PostgresSummaries(database),
                model=FlakyModel(OfflineModel(), Chance({})),
                publisher=publisher,
                tokens=EstimatedTokens(),
                clock=SystemClock(),
                settings=settings,
            )

    try:
        async with asyncio.TaskGroup() as tasks:
            for turn in latest.values():
                tasks.create_task(one(turn))
    finally:
        await client.aclose()
        await database.close()
        await publisher.aclose()
