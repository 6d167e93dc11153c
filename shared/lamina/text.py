"""Text that every store can hold."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with NUL and lone surrogates replaced by U+FFFD: PostgreSQL and UTF-8 have no place for them.

    Only derived text goes through here (statements, summaries, episodes). The log keeps turns exactly.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def _storable(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_storable)]
"""A string field of something derived."""
