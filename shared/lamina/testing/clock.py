"""A clock that tells the time it is told."""

from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass
class StoppedClock:
    """Clock port that stands still until a test moves `moment`."""

    moment: datetime = field(default=datetime(2026, 1, 5, 12, tzinfo=UTC))

    def now(self) -> datetime:
        """`moment`."""
        return self.moment
