"""Google's generated asyncio clients, for Pub/Sub or for an emulator of it."""

import os
from collections.abc import Callable
from typing import TypeVar

import grpc
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from lamina.errors import ConfigurationError

Client = TypeVar("Client")

_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def publisher_client(emulator: str | None = None) -> PublisherAsyncClient:
    """Speaks to `emulator`, or PUBSUB_EMULATOR_HOST, where there is one.

    ConfigurationError where there is neither an emulator nor a login to Google Cloud.
    """
    channel = _emulator(emulator)
    if channel is None:
        return _logged_in(PublisherAsyncClient)
    return PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))


def subscriber_client(emulator: str | None = None) -> SubscriberAsyncClient:
    """The same for pulling."""
    channel = _emulator(emulator)
    if channel is None:
        return _logged_in(SubscriberAsyncClient)
    return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))


def _emulator(named: str | None) -> grpc.aio.Channel | None:
    address = named or os.environ.get("PUBSUB_EMULATOR_HOST")
    return grpc.aio.insecure_channel(address, options=_UNLIMITED) if address else None


def _logged_in(client: Callable[[], Client]) -> Client:
    try:
        return client()
    except GoogleAuthError as error:
        raise ConfigurationError(
            "no login to Google Cloud was found (gcloud auth application-default login); "
            'for a local stack set PUBSUB_EMULATOR_HOST: eval "$(lamina status --env)"'
        ) from error
