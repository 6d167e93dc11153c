"""Dead letters on Pub/Sub: read under a lease, sent back to the subscriber that failed, or removed.

    async with DeadLetters.connect("my-project") as dead:
        letters = [letter async for letter in dead.scan()]
        outcome = await dead.replay(letters)

What `scan` gives is leased, so that nobody else works on it; the lease is extended until the letter is
replayed, removed or released, and the end of the context releases what is left. A killed process loses
nothing: its leases run out.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self, cast

from google.pubsub_v1 import PubsubMessage

from lamina.errors import LaminaError, Transient
from lamina.ports import Message
from lamina.pubsub.clients import publisher_client, subscriber_client
from lamina.pubsub.leases import LEASE_S, Key, Leases
from lamina.pubsub.letter import DeadLetter
from lamina.pubsub.publisher import PubSubPublisher
from lamina.topology import Topology, load_topology

__all__ = ["CLOUD", "EMULATOR", "DeadLetter", "DeadLetters", "Outcome", "Patience"]

_AT_ONCE = 32
_LATECOMER_S = 10
"""A scan does not go on for those that arrive so long after it began."""


@dataclass(frozen=True)
class Patience:
    """When a scan believes that there is no more."""

    empty_pulls: int
    """So many in a row, for each subscription."""
    wait_s: float | None
    """How long an empty pull waits for messages; None asks for what is there now."""


EMULATOR = Patience(empty_pulls=2, wait_s=None)
CLOUD = Patience(empty_pulls=3, wait_s=5)
"""The service answers from one of many servers: an empty answer says little."""


@dataclass
class Outcome:
    """What a replay did."""

    done: int = 0
    failed: list[tuple[DeadLetter, LaminaError]] = field(default_factory=list[tuple[DeadLetter, LaminaError]])
    """These stay dead letters."""
    untried: int = 0
    """Left alone after Pub/Sub failed; these stay as well."""


class DeadLetters:
    """The dead letters of a deployment's subscriptions. Use it as a context manager."""

    def __init__(
        self,
        leases: Leases,
        publisher: PubSubPublisher,
        *,
        patience: Patience = CLOUD,
        topology: Topology | None = None,
    ) -> None:
        self._leases = leases
        self._publisher = publisher
        self._patience = patience
        self._topology = topology or load_topology()

    @classmethod
    def connect(
        cls,
        project: str,
        topic_prefix: str = "",
        *,
        emulator: str | None = None,
        patience: Patience | None = None,
        topology: Topology | None = None,
        lease_s: int = LEASE_S,
    ) -> Self:
        """Those of a Google Cloud project; `emulator` or PUBSUB_EMULATOR_HOST redirects to one.

        ConfigurationError where there is neither an emulator nor a login to Google Cloud.
        """
        emulator = emulator or os.environ.get("PUBSUB_EMULATOR_HOST")
        return cls(
            Leases(subscriber_client(emulator), project, topic_prefix, lease_s),
            PubSubPublisher(publisher_client(emulator), project, topic_prefix),
            patience=patience or (EMULATOR if emulator else CLOUD),
            topology=topology,
        )

    @property
    def held(self) -> int:
        """How many this object holds now."""
        return len(self._leases)

    async def scan(self, subscriptions: Collection[str] = ()) -> AsyncGenerator[DeadLetter]:
        """Every dead letter that nobody else holds, each once; of all subscriptions unless some are named.

        Collect them before you replay any: one that fails again would be met again.
        """
        began = datetime.now(UTC)
        names = subscriptions or [each.name for each in self._topology.subscriptions]
        quiet = dict.fromkeys(names, 0)
        seen: set[Key] = set()
        while quiet:
            asked = list(quiet)
            pulled = await asyncio.gather(*(self._pull(name) for name in asked))
            for name, letters in zip(asked, pulled, strict=True):
                fresh = {letter.key: letter for letter in letters if letter.key not in seen}
                seen.update(fresh)
                timely = any(not _late(letter, began) for letter in fresh.values())
                quiet[name] = 0 if timely else quiet[name] + 1
                if quiet[name] >= self._patience.empty_pulls:
                    del quiet[name]
                for letter in fresh.values():
                    yield letter

    async def replay(
        self,
        letters: Iterable[DeadLetter],
        *,
        rate: float | None = None,
        on_done: Callable[[DeadLetter], None] | None = None,
    ) -> Outcome:
        """Send each back to the subscriber that failed, `rate` a second at most.

        A dead letter is acknowledged once the broker has its message: what goes wrong in between sends the
        same event twice, and never loses it. One that is not held here (read from a file) is only sent.
        After a transient failure no further one is tried.
        """
        outcome = Outcome()
        waiting = iter(letters)
        pace = _Pace(rate)

        async def work() -> None:
            for letter in waiting:
                if any(isinstance(error, Transient) for _, error in outcome.failed):
                    outcome.untried += 1
                    continue
                await pace.turn()
                try:
                    await self._replay(letter)
                except LaminaError as error:
                    outcome.failed.append((letter, error))
                else:
                    outcome.done += 1
                    if on_done is not None:
                        on_done(letter)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(work())
        return outcome

    async def remove(self, letters: Iterable[DeadLetter]) -> int:
        """Take letters that a scan of this object gave out for good, and say how many they were.

        ValueError where one is not held.
        """
        held = [self._lease(letter) for letter in letters]
        await self._leases.acknowledge(held)
        return len(held)

    async def release(self, letters: Iterable[DeadLetter] | None = None) -> None:
        """Give letters back at once, so that others can have them: all unless some are named."""
        await self._leases.release(None if letters is None else [self._lease(letter) for letter in letters])

    async def keep(self, letters: Iterable[DeadLetter]) -> None:
        """Give back all but these."""
        kept = {self._lease(letter) for letter in letters}
        await self._leases.release([lease for lease in self._leases if lease not in kept])

    async def aclose(self) -> None:
        """Release what is held and close the connections."""
        await self._leases.aclose()
        await self._publisher.aclose()

    async def __aenter__(self) -> Self:
        """Use as a context manager."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release and close."""
        await self.aclose()

    async def _replay(self, letter: DeadLetter) -> None:
        topic = self._topology.subscription(letter.subscription).topic
        await self._publisher.send(topic, letter.again)
        lease = self._lease(letter)
        if lease in self._leases:
            await self._leases.acknowledge([lease])

    def _lease(self, letter: DeadLetter) -> Key:
        return self._pulled_from(letter.subscription), letter.message_id

    def _pulled_from(self, name: str) -> str:
        """The pull subscription of a subscriber's dead letters has the name of their topic."""
        return self._topology.subscription(name).dead_letter_topic

    async def _pull(self, name: str) -> list[DeadLetter]:
        pulled = await self._leases.pull(self._pulled_from(name), self._patience.wait_s)
        return [self._letter(name, each) for each in pulled]

    def _letter(self, name: str, told: PubsubMessage) -> DeadLetter:
        return DeadLetter.of(
            name,
            Message(told.data, dict(told.attributes), told.ordering_key),
            told.message_id,
            cast("datetime", told.publish_time),  # the client makes one of the protobuf's own
            self._topology.subscription(name).service,
        )


class _Pace:
    """Hands out turns, so many a second at most."""

    def __init__(self, rate: float | None) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for one's turn."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._gap
        if at > now:
            await asyncio.sleep(at - now)


def _late(letter: DeadLetter, began: datetime) -> bool:
    return letter.published is not None and letter.published > began + timedelta(seconds=_LATECOMER_S)
