"""Messages held under a lease: pulled, kept from others while it takes, acknowledged or given back."""

# The generated client leaves its `retry` and `request` arguments untyped.
# pyright: reportUnknownMemberType=false

import asyncio
import itertools
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress

from google.api_core.exceptions import (
    DeadlineExceeded,
    GoogleAPICallError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    RetryError,
)
from google.api_core.retry import AsyncRetry, if_transient_error
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import PubsubMessage, PullRequest, SubscriberAsyncClient

from lamina.errors import ConfigurationError, DependencyUnavailable, LaminaError

LEASE_S = 60

Key = tuple[str, str]
"""A subscription and the id of a message in it."""

_PULL_MESSAGES = 1000
_ACK_IDS = 1000
"""In one request; the service takes half a megabyte of them, at some 200 bytes each."""
_TIMEOUT_S = 30.0
_RETRY = AsyncRetry(predicate=if_transient_error, initial=0.1, maximum=2, timeout=10)
"""Of a pull, which an operator waits for: the client's own goes on for a minute."""


class Leases:
    """What this process holds of a project's pull subscriptions. Extends it until it is settled."""

    def __init__(
        self, client: SubscriberAsyncClient, project: str, prefix: str = "", lease_s: int = LEASE_S
    ) -> None:
        self._client = client
        self._root = f"projects/{project}/subscriptions/{prefix}"
        self._lease_s = lease_s
        self._held: dict[Key, str] = {}
        self._keeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._held))

    async def pull(self, subscription: str, wait_s: float | None) -> list[PubsubMessage]:
        """Lease what there is, within a request's limits; None for `wait_s` does not wait for any.

        A message that comes again while it is held is given again, and held once.
        """
        path = self._root + subscription
        request = PullRequest(
            subscription=path, max_messages=_PULL_MESSAGES, return_immediately=wait_s is None
        )
        with _translated(path):
            try:
                answer = await self._client.pull(request, timeout=wait_s or _TIMEOUT_S, retry=_RETRY)
            except DeadlineExceeded:
                if wait_s is None:
                    raise
                return []
        for each in answer.received_messages:
            self._held[subscription, each.message.message_id] = each.ack_id
        if self._held and self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())
        return [each.message for each in answer.received_messages]

    async def acknowledge(self, keys: Iterable[Key]) -> None:
        """Settle messages for good. ValueError where one is not held."""
        wanted = list(keys)
        if strangers := [key for key in wanted if key not in self._held]:
            raise ValueError(f"not held: {strangers[:3]}")
        for subscription, portion in _portions(wanted):
            path = self._root + subscription
            ack_ids = [self._held[key] for key in portion]
            with _translated(path):
                await self._client.acknowledge(subscription=path, ack_ids=ack_ids, timeout=_TIMEOUT_S)
            for key in portion:
                self._held.pop(key, None)

    async def release(self, keys: Iterable[Key] | None = None) -> None:
        """Give messages back at once: those that are named and held, else all."""
        wanted = [key for key in (self if keys is None else keys) if key in self._held]
        await self._set_deadline(wanted, 0)
        for key in wanted:
            self._held.pop(key, None)

    async def aclose(self) -> None:
        """Give everything back and close the connection. Where that fails, the leases run out."""
        if self._keeper is not None:
            self._keeper.cancel()
        with suppress(LaminaError):
            await self.release()
        await self._client.transport.close()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 4)
            with suppress(LaminaError):  # the next round comes well before the leases run out
                await self._set_deadline(self, self._lease_s)

    async def _set_deadline(self, keys: Iterable[Key], seconds: int) -> None:
        for subscription, portion in _portions(keys):
            path = self._root + subscription
            ack_ids = [self._held[key] for key in portion if key in self._held]
            with _translated(path):
                if ack_ids:
                    await self._client.modify_ack_deadline(
                        subscription=path,
                        ack_ids=ack_ids,
                        ack_deadline_seconds=seconds,
                        timeout=_TIMEOUT_S,
                    )


def _portions(keys: Iterable[Key]) -> Iterator[tuple[str, list[Key]]]:
    """By subscription, each as long as a request may be."""
    for subscription, group in itertools.groupby(sorted(keys), key=lambda key: key[0]):
        while portion := list(itertools.islice(group, _ACK_IDS)):
            yield subscription, portion


@contextmanager
def _translated(path: str) -> Generator[None]:
    try:
        yield
    except NotFound as error:
        raise ConfigurationError(f"the subscription {path} does not exist") from error
    except (InvalidArgument, PermissionDenied) as error:
        raise ConfigurationError(f"Pub/Sub refused access to {path}: {error.message}") from error
    except (GoogleAPICallError, RetryError, GoogleAuthError) as error:
        raise DependencyUnavailable("pubsub", str(error)[:300]) from error
