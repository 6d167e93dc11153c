"""Topics, subscriptions and services, read from the one file that Terraform and the local stack read too."""

from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field

from lamina.model import Frozen

REPLAY_ATTRIBUTE = "replay_to"
"""A replayed dead letter carries this attribute: only the subscription it names takes the message."""


class Service(Frozen):
    """A functions-framework service."""

    port: int
    """Where it listens on the local stack; any port in the cloud."""
    target: str
    package: str
    """Folder under `lamina_services` that holds its main.py."""
    public: bool = False
    """Whether agents call it; the others take pushes only."""
    publishes: tuple[str, ...] = ()
    """Topics it publishes to, beside its subscriptions' dead letters. The cloud lets it use no others."""
    uses: tuple[Literal["valkey", "database", "model"], ...] = ()
    """What it is given an address of, and the right to use, in the cloud."""


class Subscription(Frozen):
    """A push subscription and its dead-letter topic."""

    name: str
    topic: str
    service: str
    ack_deadline_s: Annotated[int, Field(ge=10, le=600)]

    @property
    def dead_letter_topic(self) -> str:
        """Holds what this subscriber could not process, in a pull subscription of the same name."""
        return f"{self.name}.dead"

    @property
    def path(self) -> str:
        """The push endpoint's path; it names the subscription, as a service may have two."""
        return f"/push/{self.name}"

    @property
    def filter(self) -> str:
        """Lets a replayed message reach only the subscriber that failed."""
        return f'NOT attributes:{REPLAY_ATTRIBUTE} OR attributes.{REPLAY_ATTRIBUTE} = "{self.name}"'


class Recording(Frozen):
    """A push subscription that tells the recorder of one subscription's dead letters.

    It has no dead letters of its own, which would come back to it, and no filter: a replay goes elsewhere.
    """

    of: Subscription
    """Whose dead letters they are."""
    service: str
    ack_deadline_s: int

    @property
    def topic(self) -> str:
        """The dead-letter topic."""
        return self.of.dead_letter_topic

    @property
    def name(self) -> str:
        """Beside the pull subscription, which has the topic's name."""
        return f"{self.topic}.recorder"

    @property
    def path(self) -> str:
        """The push endpoint's path."""
        return f"/push/{self.name}"


class DeadLetters(Frozen):
    """Who keeps the index of dead letters."""

    service: str
    ack_deadline_s: Annotated[int, Field(ge=10, le=600)]


class Delivery(Frozen):
    """How often, how fast and how long Pub/Sub tries."""

    max_delivery_attempts: Annotated[int, Field(ge=5, le=100)]
    minimum_backoff_s: float
    maximum_backoff_s: float
    retention_days: int


class Schedule(Frozen):
    """The tick of Cloud Scheduler."""

    topic: str
    cron: str
    local_every_s: float


class Topology(Frozen):
    """The whole of it."""

    topics: tuple[str, ...]
    services: dict[str, Service]
    subscriptions: tuple[Subscription, ...]
    dead_letters: DeadLetters
    delivery: Delivery
    schedule: Schedule

    def subscription(self, name: str) -> Subscription:
        """The subscription of that name; KeyError where there is none."""
        return {subscription.name: subscription for subscription in self.subscriptions}[name]

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """Derived: one for each subscription."""
        index = self.dead_letters
        return tuple(
            Recording(of=each, service=index.service, ack_deadline_s=index.ack_deadline_s)
            for each in self.subscriptions
        )

    def ack_deadline_s(self, name: str) -> int:
        """How long a push of this subscription or recording may take; KeyError where there is none."""
        return {each.name: each.ack_deadline_s for each in (*self.subscriptions, *self.recordings)}[name]


@cache
def load_topology() -> Topology:
    """The packaged `topology.json`, checked."""
    return Topology.model_validate_json(files("lamina").joinpath("topology.json").read_text("utf-8"))
