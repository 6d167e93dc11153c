"""Resource names: `projects/{project}/topics/{id}` and `projects/{project}/subscriptions/{id}`."""

import re

from lamina_services.local.pubsub.faults import InvalidArgument

DELETED_TOPIC = "_deleted-topic_"
"""What the topic of a subscription reads once its topic is gone."""

_ID = r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}"
_TOPIC = re.compile(rf"projects/[^/]+/topics/{_ID}")
_SUBSCRIPTION = re.compile(rf"projects/[^/]+/subscriptions/{_ID}")
_PROJECT = re.compile(r"projects/[^/]+")


def _require(pattern: re.Pattern[str], name: str, kind: str) -> str:
    if pattern.fullmatch(name) is None:
        raise InvalidArgument(f"Invalid {kind} name: {name!r}.")
    return name


def topic_name(name: str) -> str:
    """The name itself, or InvalidArgument."""
    return _require(_TOPIC, name, "topic")


def subscription_name(name: str) -> str:
    """The name itself, or InvalidArgument."""
    return _require(_SUBSCRIPTION, name, "subscription")


def project_name(name: str) -> str:
    """The name itself (`projects/{project}`), or InvalidArgument."""
    return _require(_PROJECT, name, "project")


def project_of(name: str) -> str:
    """The project id inside a resource name."""
    return name.split("/")[1]


def id_of(name: str) -> str:
    """The last part of a resource name."""
    return name.rsplit("/", 1)[1]
