"""Makes Pub/Sub give up sooner, so that bad luck alone makes dead letters within the time of a run."""

# The generated client leaves its `retry` and `request` arguments untyped.
# pyright: reportUnknownMemberType=false

from datetime import timedelta

from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1 import DeadLetterPolicy, RetryPolicy, SubscriberAsyncClient, Subscription

from lamina.pubsub.clients import subscriber_client
from lamina.topology import load_topology
from lamina_services.local.polling import until
from lamina_services.local.stack import Stack

ATTEMPTS = 5
"""The fewest that Pub/Sub takes; production has more."""
LONGEST_S = 8
_PATHS = ("dead_letter_policy", "retry_policy")
_ANSWER_S = 5.0
_BACK_S = 60.0


async def impatient(stack: Stack) -> None:
    """Once the emulator that runs now has its topics: it sets them up anew whenever it starts."""
    client = subscriber_client(stack.state.pubsub)

    async def changed() -> bool:
        if report_is_stale(stack):
            return False
        try:
            for each in load_topology().subscriptions:
                await _change(client, f"projects/{stack.state.project}", each.name, each.dead_letter_topic)
        except (GoogleAPICallError, RetryError):  # killed again
            return False
        return True

    try:
        await until(changed, timeout_s=_BACK_S, what="Pub/Sub")
    finally:
        await client.transport.close()


def report_is_stale(stack: Stack) -> bool:
    """Whether the emulator that runs now has not told its counters yet, which it does once all is set up."""
    emulator, report = stack.child("pubsub").identity, stack.home.pubsub / "report.json"
    try:
        return emulator is None or report.stat().st_mtime < emulator.started
    except FileNotFoundError:
        return True


async def _change(client: SubscriberAsyncClient, project: str, name: str, dead_letter_topic: str) -> None:
    wanted = Subscription(
        name=f"{project}/subscriptions/{name}",
        dead_letter_policy=DeadLetterPolicy(
            dead_letter_topic=f"{project}/topics/{dead_letter_topic}", max_delivery_attempts=ATTEMPTS
        ),
        retry_policy=RetryPolicy(
            minimum_backoff=timedelta(seconds=1), maximum_backoff=timedelta(seconds=LONGEST_S)
        ),
    )
    mask = FieldMask(paths=list(_PATHS))
    await client.update_subscription(subscription=wanted, update_mask=mask, timeout=_ANSWER_S)
