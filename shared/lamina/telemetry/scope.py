"""What is being worked on: whose event or request it is. Logs, spans and measurements take it from here."""

import hmac
import json
import os
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property

from lamina.events import PAYLOADS
from lamina.model import SessionKey
from lamina.telemetry.declared import Attribute

LOG_KEY = "LAMINA_LOG_KEY"
"""The environment variable with the key of `user_digest`."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LONGEST = 256


def user_digest(app: str, user_id: str) -> str:
    """32 hexadecimal digits that stand for a user in logs and traces: HMAC-SHA-256 under LAMINA_LOG_KEY.

    One-way. Without a key whoever can guess an id can check the guess; with one, only its holder can.
    """
    key = os.environ.get(LOG_KEY, "").encode("utf-8", "surrogateescape")
    message = json.dumps([app, user_id]).encode("ascii")  # as a list, so that no two pairs look the same
    return hmac.new(key, message, "sha256").hexdigest()[:32]


@dataclass(frozen=True)
class Subject:
    """Whose data it is about. Holds the ids as they are, and gives away only digests of a user's own."""

    app: str
    user_id: str
    session_id: str | None = None
    turn_id: str | None = None

    @classmethod
    def of(cls, thing: object) -> "Subject | None":
        """Of a payload, a turn or a request; None where it is about nobody."""
        source = getattr(thing, "turn", thing)
        app, user_id = getattr(source, "app", None), getattr(source, "user_id", None)
        if not isinstance(app, str) or not isinstance(user_id, str):
            return None
        return cls(app, user_id, getattr(source, "session_id", None), getattr(source, "turn_id", None))

    @cached_property
    def user(self) -> str:
        """Stands for the user."""
        return user_digest(self.app, self.user_id)

    @cached_property
    def session(self) -> str | None:
        """Stands for the session."""
        if not self.session_id:
            return None
        # Built without a second validation: the ids come from a model that has done it.
        key = SessionKey.model_construct(app=self.app, user_id=self.user_id, session_id=self.session_id)
        return key.digest

    def attributes(self) -> dict[str, str]:
        """What a span says of it."""
        values = {
            Attribute.APP: self.app,
            Attribute.USER: self.user,
            Attribute.SESSION: self.session,
            Attribute.TURN: self.turn_id,
        }
        return {name.value: plain(value) for name, value in values.items() if value}

    def fields(self) -> dict[str, str]:
        """What a log line says of it."""
        values = {"app": self.app, "user": self.user, "session": self.session, "turn_id": self.turn_id}
        return {name: value for name, value in values.items() if value}


@dataclass
class Scope:
    """One event or request being worked on."""

    service: str
    subscription: str = ""
    event: Mapping[str, str] = field(default_factory=dict[str, str])
    """The attributes of its message."""
    message_id: str = ""
    """The id that the message was first published under."""
    subject: Subject | None = None
    outcome: str = ""
    error: BaseException | None = None

    @property
    def app(self) -> str:
        """The app; empty where there is none."""
        return self.subject.app if self.subject else ""

    @property
    def root_key(self) -> str:
        """What a trace's id is made of where the event does not bring one: the same on every delivery."""
        return self.event.get("ce-id") or self.message_id

    @property
    def event_id(self) -> str:
        """The event's id where it is a UUID, as Lamina's are. A stranger's could hold anything."""
        event_id = self.event.get("ce-id", "")
        return event_id if _UUID.fullmatch(event_id) else ""

    @property
    def event_type(self) -> str:
        """The event's type where it is one of Lamina's."""
        event_type = self.event.get("ce-type", "")
        return event_type if event_type in PAYLOADS else ""

    def fields(self) -> dict[str, str]:
        """What a log line says of it."""
        own = {
            "service": self.service,
            "subscription": self.subscription,
            "event_id": self.event_id,
            "event_type": self.event_type,
        }
        return {name: value for name, value in own.items() if value} | (
            self.subject.fields() if self.subject else {}
        )


current: ContextVar[Scope | None] = ContextVar("lamina_scope", default=None)


def plain(text: str) -> str:
    """Text that any exporter can carry: a lone surrogate would cost it the whole batch."""
    return text.encode("utf-8", "backslashreplace")[:_LONGEST].decode("utf-8", "ignore")
