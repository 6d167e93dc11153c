"""How each part is, told from counters: pure, the same for the local stack and for the cloud."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lamina.postgres.vitals import LetterCount, StageLag
from lamina.topology import Recording, Subscription

STALLED_S = 60.0
"""On the local stack. A turn takes a worker seconds; two questions to a slow model take at most 50."""
STALLED_IN_THE_CLOUD_S = 300.0
"""A new instance has to start, and Cloud Monitoring tells of a minute only some minutes later."""
SLOW_SHARE = 0.5
"""Of the time after which a stage counts as dead: from then on it is worth a look."""
_USUAL_DEADLINE_S = 120
"""The acknowledgement deadline that these times are meant for; a longer one gets longer in proportion."""


class Light(enum.StrEnum):
    """How a part is."""

    GREEN = "ok"
    YELLOW = "look"
    RED = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Part:
    """One line of the report."""

    name: str
    light: Light
    detail: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The same for programs."""


@dataclass(frozen=True)
class Queue:
    """A subscription's counters. Times are seconds since 1970; None where nothing is known."""

    waiting: int
    in_flight: int | None = None
    done: int | None = None
    refused: int | None = None
    """Nacks and missed deadlines, since the last acknowledgement."""
    oldest_at: float | None = None
    """When the oldest waiting message was published."""
    last_done_at: float | None = None
    counted_since: float = 0.0

    @classmethod
    def of_report(cls, counters: Mapping[str, Any], began_at: float) -> "Queue":
        """What the emulator's report says of a subscription."""
        return cls(
            waiting=counters["backlog"],
            in_flight=counters["in_flight"],
            done=counters["acked"],
            refused=counters["refused_since_ack"],
            oldest_at=counters["oldest_published_at"],
            last_done_at=counters["last_acked_at"],
            counted_since=began_at,
        )

    def stuck_s(self, now: float) -> float:
        """For how long something has waited while nothing was done; 0 where that is not so."""
        if not self.waiting or self.oldest_at is None:
            return 0.0
        idle_since = max(self.last_done_at or 0.0, self.counted_since)
        return max(0.0, now - max(self.oldest_at, idle_since))

    def age_s(self, now: float) -> float:
        """How long the oldest has waited."""
        return max(0.0, now - self.oldest_at) if self.waiting and self.oldest_at is not None else 0.0


def stage(subscription: Subscription, queue: Queue | None, now: float, stalled_s: float) -> Part:
    """Red where the stage is dead, whatever its process says of itself: work waits, and none gets done."""
    return _stage(f"{subscription.topic} → {subscription.name}", subscription, queue, now, stalled_s)


def recorder(recording: Recording, queue: Queue | None, now: float, stalled_s: float) -> Part:
    """The same for the recorder of dead letters, all its subscriptions `together`."""
    return _stage(f"dead letters → {recording.service}", recording, queue, now, stalled_s)


def _stage(
    name: str, subscription: Subscription | Recording, queue: Queue | None, now: float, stalled_s: float
) -> Part:
    if queue is None:
        return Part(name, Light.UNKNOWN, "nobody counts its messages here")
    patience = stalled_s * max(1.0, subscription.ack_deadline_s / _USUAL_DEADLINE_S)
    stuck, age = queue.stuck_s(now), queue.age_s(now)
    words = [f"{queue.waiting} waiting"]
    if age >= 1:
        words.append(f"the oldest for {span(age)}")
    if queue.done is not None:
        words.append(f"{queue.done} done")
    light = Light.GREEN
    if stuck >= patience:
        light = Light.RED
        words.append(f"nothing done for {span(stuck)}, {_how(queue)}")
    elif queue.waiting and (age >= patience * SLOW_SHARE or queue.refused):
        light = Light.YELLOW
        words.append(f"refused {queue.refused} times in a row" if queue.refused else "it lags")
    facts: dict[str, Any] = {"service": subscription.service, "waiting": queue.waiting}
    facts |= {"oldest_s": round(age, 1)}
    facts |= {"stuck_s": round(stuck, 1), "in_flight": queue.in_flight, "refused": queue.refused}
    return Part(name, light, ", ".join(words), facts)


def _how(queue: Queue) -> str:
    if queue.refused:
        return f"refused {queue.refused} times"
    if queue.in_flight:
        return f"{queue.in_flight} pushes without an answer"
    return "not even refused"


def together(queues: Iterable[Queue]) -> Queue:
    """Several subscriptions of one service as one."""
    each = list(queues)
    return Queue(
        waiting=sum(queue.waiting for queue in each),
        in_flight=_sum(queue.in_flight for queue in each),
        done=_sum(queue.done for queue in each),
        refused=_sum(queue.refused for queue in each),
        oldest_at=min((queue.oldest_at for queue in each if queue.oldest_at), default=None),
        last_done_at=max((queue.last_done_at for queue in each if queue.last_done_at), default=None),
        counted_since=max((queue.counted_since for queue in each), default=0.0),
    )


def unprocessed(lag: StageLag, queue: Queue | None, now: datetime, stalled_s: float) -> Part | None:
    """The log's own account of a stage; None where nothing waits, or the queue says the same.

    Where the queue is known and holds nothing, the turn was lost on its way: worth a look, and no dead stage.
    """
    if not lag.waiting or lag.oldest is None:
        return None
    age = (now - lag.oldest).total_seconds()
    if age < stalled_s:
        return None
    turn = f"turn {lag.turn_id} of {lag.app}/{lag.user_id}/{lag.session_id}"
    detail = f"{lag.waiting} turns in the log it has not processed, the oldest for {span(age)}: {turn}"
    idle = (now - lag.last_done).total_seconds() if lag.last_done else age
    light = Light.YELLOW
    if queue is None and min(age, idle) >= stalled_s:
        light = Light.RED
    elif queue is not None and not queue.waiting:
        detail += "; none of them is in its queue: `lamina trace` tells more"
    facts = {
        "subscription": lag.subscription,
        "waiting": lag.waiting,
        "oldest_s": round(age, 1),
        "turn": {n: getattr(lag, n) for n in ("app", "user_id", "session_id", "turn_id")},
    }
    return Part(f"log → {lag.subscription}", light, detail, facts)


def letters(
    subscription: Subscription, queued: int | None, counts: Sequence[LetterCount], now: datetime
) -> Part | None:
    """Dead letters by class of error; None where there are none."""
    mine = [count for count in counts if count.subscription == subscription.name]
    named = sum(count.letters for count in mine)
    if not queued and not named:
        return None
    if queued == 0:  # the index remembers them until they expire
        return Part(f"dead letters of {subscription.name}", Light.GREEN, "none is left in the queue")
    words = [
        f"{each.letters} {each.error} (since {span((now - each.oldest).total_seconds())} ago)"
        for each in mine
    ]
    if queued is not None and queued != named:
        words.append(f"{queued} in the queue")
    facts = {
        "subscription": subscription.name,
        "queued": queued,
        "by_error": {each.error: each.letters for each in mine},
    }
    return Part(f"dead letters of {subscription.name}", Light.YELLOW, ", ".join(words), facts)


def span(seconds: float) -> str:
    """A duration for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
