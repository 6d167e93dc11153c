"""Publishing to Pub/Sub, and parking what cannot be processed."""

# The generated client leaves its `retry` and `request` arguments untyped.
# pyright: reportUnknownMemberType=false

from google.api_core.exceptions import (
    GoogleAPICallError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    RetryError,
)
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import PublisherAsyncClient, PubsubMessage

from lamina.envelope import encode
from lamina.errors import ConfigurationError, DependencyUnavailable
from lamina.events import Payload
from lamina.ports import Message
from lamina.telemetry import sending, traced

PUBLISH_TIMEOUT_S = 30.0
PING_TIMEOUT_S = 2.0


class PubSubPublisher:
    """Publisher port on Pub/Sub. A publish returns once the broker has the message."""

    def __init__(self, client: PublisherAsyncClient, project: str, prefix: str = "") -> None:
        self._client = client
        self._project = project
        self._prefix = prefix

    async def publish(self, payload: Payload) -> str:
        """Publish to the payload's topic. Gives the message id; TooLarge before anything is sent."""
        with sending(payload):
            return await self.send(payload.topic, traced(encode(payload)))

    async def park(self, subscription: str, message: Message) -> str:
        """Put the message on the subscription's dead-letter topic."""
        return await self.send(f"{subscription}.dead", message)

    async def ping(self) -> None:
        """Raise DependencyUnavailable unless Pub/Sub answers; an answer that refuses is one."""
        path = f"projects/{self._project}/topics/{self._prefix}turns"
        try:
            await self._client.get_topic(topic=path, timeout=PING_TIMEOUT_S)
        except (NotFound, PermissionDenied):
            return
        except (GoogleAPICallError, RetryError, GoogleAuthError) as error:
            raise DependencyUnavailable("pubsub", str(error)[:300]) from error

    async def aclose(self) -> None:
        """Close the connection."""
        await self._client.transport.close()

    async def send(self, topic: str, message: Message) -> str:
        """Put a message as it is on a topic. Gives the message id."""
        path = f"projects/{self._project}/topics/{self._prefix}{topic}"
        outgoing = PubsubMessage(
            data=message.data, attributes=message.attributes, ordering_key=message.ordering_key
        )
        try:
            answer = await self._client.publish(topic=path, messages=[outgoing], timeout=PUBLISH_TIMEOUT_S)
        except NotFound as error:
            raise ConfigurationError(f"the topic {path} does not exist") from error
        except (InvalidArgument, PermissionDenied) as error:
            raise ConfigurationError(f"Pub/Sub refused a message to {path}: {error.message}") from error
        except (GoogleAPICallError, RetryError, GoogleAuthError) as error:
            raise DependencyUnavailable("pubsub", str(error)[:300]) from error
        return str(answer.message_ids[0])
