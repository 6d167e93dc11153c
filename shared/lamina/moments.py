"""Times as others write them: in attributes, headers and wrapped pushes."""

from datetime import UTC, datetime
from typing import Any


def moment_of(text: Any) -> datetime | None:
    """The time, where the text is one with a zone that UTC can express; else None.

    Near the years 1 and 9999 a time may exist in its own zone and not in UTC.
    """
    try:
        moment = datetime.fromisoformat(str(text)) if text else None
        if moment is None or moment.tzinfo is None:
            return None
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment
