"""Marks around memory that was put into a prompt, so that extraction never learns it again from an echo."""

import re

OPEN = "<lamina-memory>"
CLOSE = "</lamina-memory>"

_FENCED = re.compile(r"<lamina-memory>.*?(?:</lamina-memory>|\Z)", re.DOTALL | re.IGNORECASE)
_MARK = re.compile(r"<(?=/?lamina-memory>)", re.IGNORECASE)


def fence(block: str) -> str:
    """The block between the marks; marks inside it are disarmed, so that stored text cannot end it."""
    return f"{OPEN}\n{_MARK.sub('‹', block)}\n{CLOSE}"


def strip_fenced(text: str) -> str:
    """The text without any fenced block; one that was never closed reaches to the end."""
    return _FENCED.sub("", text)
