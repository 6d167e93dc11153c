"""How the story is told: by agents that try again until they are heard, twice now and then, in any order."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import httpx
from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.pubsub_v1 import PubsubMessage

from lamina.envelope import encode
from lamina.events import TurnPublished
from lamina.model import Turn
from lamina.ports import Message
from lamina.pubsub.clients import publisher_client
from lamina_services.local.home import StackState
from lamina_services.local.polling import until

DUPLICATES = 0.1
"""The share of what is told that is told twice."""
BY_HTTP = 0.25
"""The share of turns that are posted to turn-ingest; the others are published to the topic."""

_IN_FLIGHT = 32
_ANSWER_S = 5.0
_HEARD_S = 120.0

Telling = Turn | Message


def shuffled(seed: str, told: Sequence[Telling]) -> list[Telling]:
    """In an order of the seed's own, some of it twice."""
    chance = random.Random(f"delivery {seed}")  # noqa: S311 - reproducible, not a secret
    everything = [*told, *chance.sample(list(told), round(len(told) * DUPLICATES))]
    chance.shuffle(everything)
    return everything


class Teller:
    """Publishes and posts to a running stack; use it as an async context manager."""

    def __init__(self, state: StackState, seed: int = 0) -> None:
        self.tries = 0
        """How often something had to be said again."""
        self._turns_topic = f"projects/{state.project}/topics/turns"
        self._client = publisher_client(state.pubsub)
        self._http = httpx.AsyncClient(base_url=state.services["turn-ingest"], timeout=_ANSWER_S)
        self._chance = random.Random(f"doors {seed}")  # noqa: S311 - reproducible, not a secret
        self._cleanup = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open."""
        self._cleanup.push_async_callback(self._client.transport.close)
        await self._cleanup.enter_async_context(self._http)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._cleanup.aclose()

    async def tell(
        self,
        everything: Sequence[Telling],
        over_s: float = 0.0,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        """All of it, spread over so many seconds; returns once all of it is heard.

        `progress` is told the share that is.
        """
        gate = asyncio.Semaphore(_IN_FLIGHT)
        loop = asyncio.get_running_loop()
        heard = 0
        began, step = loop.time(), over_s / max(1, len(everything))

        async def one(number: int, telling: Telling) -> None:
            nonlocal heard
            await asyncio.sleep(began + number * step - loop.time())
            async with gate:
                await self.say(telling)
            heard += 1
            progress(heard / len(everything))

        async with asyncio.TaskGroup() as tasks:
            for number, telling in enumerate(everything):
                tasks.create_task(one(number, telling))

    async def say(self, telling: Telling) -> None:
        """Once, as often as it takes. DependencyUnavailable where nobody listens for two minutes."""
        posted = isinstance(telling, Turn) and self._chance.random() < BY_HTTP

        async def heard() -> bool:
            done = await (self._post(telling) if posted else self._publish(telling))
            self.tries += not done
            return done

        await until(heard, timeout_s=_HEARD_S, what="Pub/Sub" if not posted else "turn-ingest", every_s=0.2)

    async def _publish(self, telling: Telling) -> bool:
        message = encode(TurnPublished(turn=telling)) if isinstance(telling, Turn) else telling
        outgoing = PubsubMessage(
            data=message.data, attributes=message.attributes, ordering_key=message.ordering_key
        )
        try:
            await self._client.publish(topic=self._turns_topic, messages=[outgoing], timeout=_ANSWER_S)  # pyright: ignore[reportUnknownMemberType] - the generated client is untyped there
        except (GoogleAPICallError, RetryError):
            return False
        return True

    async def _post(self, telling: Telling) -> bool:
        assert isinstance(telling, Turn)  # noqa: S101 - narrows the type: only turns are posted
        try:
            response = await self._http.post(
                "/v1/turns", content=telling.encode(), headers={"content-type": "application/json"}
            )
        except httpx.HTTPError:
            return False
        return response.status_code == 200
