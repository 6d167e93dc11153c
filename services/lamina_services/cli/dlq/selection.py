"""Which dead letters are meant, and what they have in common. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from lamina.errors import ConfigurationError, NotFound
from lamina.pubsub.letter import DeadLetter

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_CANDIDATES = 5
_EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Selection:
    """What an operator asked for; every part that is given must fit."""

    subscriptions: Collection[str] = ()
    reason: str | None = None
    """The error's class, or a piece of its words, in any case."""
    user: str | None = None
    """Empty: those whose user cannot be read."""
    app: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: Sequence[str] = ()

    def matches(self, letter: DeadLetter) -> bool:
        """Whether everything but the ids fits."""
        return (
            (not self.subscriptions or letter.subscription in self.subscriptions)
            and (self.reason is None or _failed_so(letter, self.reason.casefold()))
            and self.user in (None, letter.owner.user_id)
            and self.app in (None, letter.owner.app)
            and self._in_time(letter.parked_at)
        )

    def pick(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Those that are meant, the longest dead first. NotFound or ConfigurationError of a wrong id."""
        chosen = [letter for letter in letters if self.matches(letter)]
        if self.ids:
            keys = {letter.key for name in self.ids for letter in named(chosen, name)}
            chosen = [letter for letter in chosen if letter.key in keys]
        return sorted(chosen, key=lambda letter: (_when(letter), letter.key))

    def _in_time(self, at: datetime | None) -> bool:
        if self.since is None and self.until is None:
            return True
        if at is None:
            return False
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@dataclass(frozen=True)
class Group:
    """Dead letters of one subscription that failed with the same error."""

    subscription: str
    error: str
    count: int
    oldest: datetime | None
    """When the first of them became a dead letter."""
    failures: int
    """How often the worst of them has failed."""
    sample: str
    """The reason that the latest of them gives."""


def groups(letters: Iterable[DeadLetter]) -> list[Group]:
    """By subscription and error, in that order."""
    ordered = sorted(letters, key=_kind)
    return [_group(kind, list(same)) for kind, same in groupby(ordered, key=_kind)]


def named(letters: Iterable[DeadLetter], name: str) -> list[DeadLetter]:
    """Those of one event, by its id or a message id, whole or the beginning of one.

    Several subscribers may have failed at one event: all of them are given. NotFound where there is none,
    ConfigurationError where the beginning fits several events.
    """
    every = list(letters)
    exact = [letter for letter in every if name in _ids(letter)]
    fitting = exact or [letter for letter in every if name and any(i.startswith(name) for i in _ids(letter))]
    if not fitting:
        raise NotFound(f"no dead letter that can be had now has the id {name!r}, or one that begins so")
    # Publishers choose their event ids: two users' may be the same.
    events = {(letter.owner.user_id, letter.event_id or letter.message_id) for letter in fitting}
    if len(events) > 1:
        some = ", ".join(sorted(f"{event} of {user or '?'}" for user, event in events)[:_CANDIDATES])
        raise ConfigurationError(f"{name!r} begins the ids of {len(events)} dead letters: {some}")
    return fitting


def moment(text: str, now: datetime, option: str) -> datetime:
    """A date, a time, or how long ago: `2026-03-01T12:00Z`, `2h`, `3d`. Without a zone it is local."""
    try:
        if ago := re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip()):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"{option}: {text!r} is no date or time such as 2026-03-01T12:00Z, nor how long ago, such as 2h"
        ) from None


def _failed_so(letter: DeadLetter, reason: str) -> bool:
    return reason == letter.failure.error.casefold() or reason in letter.failure.reason.casefold()


def _ids(letter: DeadLetter) -> list[str]:
    return [name for name in (letter.event_id, letter.message_id, letter.failure.message_id) if name]


def _when(letter: DeadLetter) -> datetime:
    return letter.parked_at or _EARLIEST


def _kind(letter: DeadLetter) -> tuple[str, str]:
    return letter.subscription, letter.failure.error


def _group(kind: tuple[str, str], letters: list[DeadLetter]) -> Group:
    ordered = sorted(letters, key=_when)
    return Group(
        subscription=kind[0],
        error=kind[1],
        count=len(letters),
        oldest=min((letter.parked_at for letter in letters if letter.parked_at), default=None),
        failures=max(letter.failure.failures for letter in letters),
        sample=ordered[-1].failure.reason,
    )
