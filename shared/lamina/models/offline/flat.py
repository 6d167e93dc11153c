"""Accents off, length kept: positions in the flat text are positions in the original."""

import re
import unicodedata

_ACCENTED = "".join(chr(code) for code in range(0xC0, 0x250))


def _plain(char: str) -> str:
    base = unicodedata.normalize("NFD", char)[0]
    return base if base.isascii() else char


_TABLE = str.maketrans({char: _plain(char) for char in _ACCENTED} | {"’": "'", "‘": "'", "“": '"', "”": '"'})
_KEPT = re.compile(r"\b(?:é|É|está|Está)\b|(?<=r)é\b")
# "is", which without its accent would be "and" or "this"; and "I shall", which would be "that I may".


def flat(text: str) -> str:
    """The text with accents and typographic quotes made plain, character for character."""
    plain = text.translate(_TABLE)
    for kept in _KEPT.finditer(text):
        plain = plain[: kept.start()] + kept.group() + plain[kept.end() :]
    return plain
