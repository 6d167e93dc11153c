"""The emulator: a gRPC server, a broker and the pushers, started and stopped together."""

from pathlib import Path
from types import TracebackType
from typing import Self

import grpc.aio

from lamina_services.local.pubsub.broker import Broker
from lamina_services.local.pubsub.faults import PortUnavailable
from lamina_services.local.pubsub.http_client import HttpClient
from lamina_services.local.pubsub.journal import Journal
from lamina_services.local.pubsub.publisher_api import PublisherApi
from lamina_services.local.pubsub.pusher import Pusher
from lamina_services.local.pubsub.sqlite_journal import SqliteJournal
from lamina_services.local.pubsub.subscriber_api import SubscriberApi
from lamina_services.local.pubsub.subscription import Subscription, SubscriptionStats

DEFAULT_PUSH_WINDOW = 16
STOP_SECONDS = 1.0
"""How long calls that are being served may take to end."""


class Emulator:
    """Pub/Sub in this process, on a port of its own, for the loop that starts it.

    `port` 0 picks a free one. With a `state_file`, topics, subscriptions and unsettled messages survive a
    restart and a kill. `push_window` is how many pushes of one subscription are in flight at most.
    """

    def __init__(
        self,
        port: int = 0,
        state_file: Path | str | None = None,
        *,
        host: str = "127.0.0.1",
        push_window: int = DEFAULT_PUSH_WINDOW,
    ) -> None:
        self._host = host
        self._port = port
        self._state_file = Path(state_file) if state_file is not None else None
        self._push_window = push_window
        self._running: _Running | None = None

    @property
    def endpoint(self) -> str:
        """`host:port`, as PUBSUB_EMULATOR_HOST wants it; RuntimeError unless started."""
        return f"{self._host}:{self._live().port}"

    def stats(self) -> dict[str, SubscriptionStats]:
        """The counters of each subscription, by its full name; they start at zero with the emulator."""
        subscriptions = self._live().broker.subscriptions
        return {name: subscription.stats() for name, subscription in subscriptions.items()}

    async def start(self) -> None:
        """Restore the state and serve. Raises PortUnavailable or StateFileUnusable."""
        if self._running is not None:
            raise RuntimeError("The emulator is running already.")
        running = _Running(
            SqliteJournal(self._state_file) if self._state_file else Journal(), self._push_window
        )
        try:
            running.port = self._bind(running.server)
            running.broker.restore()
            await running.server.start()
        except BaseException:
            await running.stop()
            raise
        self._running = running

    async def stop(self) -> None:
        """End all calls and pushes and save the state. A second call does nothing."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _bind(self, server: grpc.aio.Server) -> int:
        try:
            port = server.add_insecure_port(f"{self._host}:{self._port}")
        except RuntimeError as error:
            raise PortUnavailable(f"Cannot listen on {self._host}:{self._port}.") from error
        if port == 0:
            raise PortUnavailable(f"Cannot listen on {self._host}:{self._port}.")
        return port

    def _live(self) -> "_Running":
        if self._running is None:
            raise RuntimeError("The emulator is not running.")
        return self._running


class _Running:
    def __init__(self, journal: Journal, push_window: int) -> None:
        self.port = 0
        self._journal = journal
        self._client = HttpClient()
        self._push_window = push_window
        self._pushers: list[Pusher] = []
        self.broker = Broker(journal, on_subscription=self._push)
        self.server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
        )
        self.server.add_generic_rpc_handlers(
            [PublisherApi(self.broker).handler(), SubscriberApi(self.broker).handler()]
        )

    async def stop(self) -> None:
        self.broker.close()
        await self.server.stop(STOP_SECONDS)
        for pusher in self._pushers:
            await pusher.stop()
        await self._client.close()
        self._journal.close()

    def _push(self, subscription: Subscription) -> None:
        self._pushers = [pusher for pusher in self._pushers if not pusher.done]
        self._pushers.append(Pusher(subscription, self._client, self._push_window))
