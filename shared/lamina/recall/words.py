"""Words as both sides of a search see them: what is stored and what is asked come out alike.

Accents and case are folded, scripts that are written without spaces become overlapping pairs of
characters, and everything that is no letter or digit becomes a space: text that went through here
can neither break a query's syntax nor be refused by a database.
"""

import re
import unicodedata
from itertools import chain

CONFIGS = {"en": "english", "es": "spanish", "pt": "portuguese"}
MAX_TERMS = 128
MAX_WORD = 80
"""A longer run of letters and digits is data (base64, a minified file), never a word someone asks for."""

_ATTACHED_MARK = 200
"""Combining classes from here on are accents; lower ones (voicing marks, viramas) change the letter."""

_ASCII_WORD = re.compile(r"[0-9]+(?:\.[0-9]+)+|[a-z0-9]+")
_NUMBER_OR_WORD = re.compile(r"\d+(?:\.\d+)+|[^\s.]+")
_SIGNED_NAMES = (
    (re.compile(r"\b([a-z])\+\+"), r"\1plusplus"),
    (re.compile(r"\b([a-z])#"), r"\1sharp"),
)
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana and iteration marks
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003ffff"  # Han, rare
    "\uac00-\ud7a3"  # Hangul: spaced, but particles stick to their words
)
_UNSPACED_RUN = re.compile(f"([{_UNSPACED}]+)")


def text_search_config(language: str) -> str:
    """The PostgreSQL text search configuration for an ISO 639-1 code; `simple` for all but en, es, pt."""
    return CONFIGS.get(language, "simple")


def searchable(text: str, language: str = "und") -> str:
    """The text as words between single spaces, ready for `to_tsvector`.

    `language` picks nothing yet: a question's language often cannot be told, and both sides must agree.
    """
    del language
    return " ".join(_words(text))


def or_query(text: str) -> tuple[str, ...]:
    """The distinct terms of a question, at most `MAX_TERMS`: of a long paste, its beginning and its end."""
    terms = tuple(dict.fromkeys(_words(text)))
    half = MAX_TERMS // 2
    return terms if len(terms) <= MAX_TERMS else terms[:half] + terms[-half:]


def websearch(terms: tuple[str, ...]) -> str:
    """The terms as one `websearch_to_tsquery` text that matches any of them."""
    return " OR ".join(f'"{term}"' for term in terms)


def _words(text: str) -> list[str]:
    folded = text.lower() if text.isascii() else _fold(text)
    for pattern, name in _SIGNED_NAMES:
        folded = pattern.sub(name, folded)
    if folded.isascii():
        return [word for word in _ASCII_WORD.findall(folded) if len(word) <= MAX_WORD]
    spaced = "".join(char if char == "." or _is_wordlike(char) else " " for char in folded)
    words: list[str] = _NUMBER_OR_WORD.findall(spaced)
    return [word for word in chain.from_iterable(map(_split, words)) if len(word) <= MAX_WORD]


def _fold(text: str) -> str:
    """Case and accents folded; letters that NFKD takes apart (Hangul, voiced kana) put together again."""
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    bare = "".join(char for char in apart if unicodedata.combining(char) < _ATTACHED_MARK)
    return unicodedata.normalize("NFC", bare)


def _is_wordlike(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN"


def _split(word: str) -> list[str]:
    """The word, its unspaced runs as overlapping pairs."""
    if word.isascii():
        return [word]
    pieces = [piece for piece in _UNSPACED_RUN.split(word) if piece]
    return list(chain.from_iterable(_pairs(p) if _UNSPACED_RUN.match(p) else [p] for p in pieces))


def _pairs(run: str) -> list[str]:
    return [run] if len(run) < 2 else [run[index : index + 2] for index in range(len(run) - 1)]
