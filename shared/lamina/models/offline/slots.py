"""The subjects that are known by name, and how each is recognised in English, Spanish and Portuguese.

A slot holds one value at a time in its scope, so that "we moved to MySQL" supersedes "we use PostgreSQL".
"""

import re
from dataclasses import dataclass
from enum import Enum

from lamina.models.offline.lists import sections


class Nature(Enum):
    """How a slot is filled."""

    CHOICE = "choice"
    """By naming one of its values: a technology, a region."""
    LIMIT = "limit"
    """By a number with a unit, which binds: the statement is a rule."""
    STYLE = "style"
    """By a manner of working: a preference unless said to be a rule."""


@dataclass(frozen=True)
class Slot:
    """A known subject."""

    name: str
    nature: Nature
    value: re.Pattern[str]
    """Matches a value, or the whole phrase, in a text."""


@dataclass(frozen=True)
class Mention:
    """A place in a text where a slot's value stands."""

    slot: Slot
    start: int
    end: int


def _read() -> tuple[Slot, ...]:
    """The slots of `data/slots.txt`, in its order: limits come first, since they hold other slots' values."""
    slots: list[Slot] = []
    for section, entries in sections("slots").items():
        nature, _, name = section.partition(": ")
        pattern = "|".join(entries)
        if nature == Nature.CHOICE.value:
            pattern = rf"(?<![\w.#/-])(?:{pattern}){_VERSION}(?![\w+#/-]|\.\w)"
        slots.append(Slot(name, Nature(nature), re.compile(pattern, re.IGNORECASE)))
    return tuple(slots)


_VERSION = r"(?: ?v?\d+(?:\.(?:\d+|x))*\+?)?"
SLOTS = _read()

_PAST_EVENT = re.compile(rf"\b(?:{'|'.join(sections('clauses')['past-event'])})\b", re.IGNORECASE)


def mentions(text: str) -> list[Mention]:
    """Every slot value in the text, in order, none overlapping; a limit outranks what it contains."""
    found: list[Mention] = []
    for slot in SLOTS:
        for match in slot.value.finditer(text):
            if slot.nature is Nature.LIMIT and _PAST_EVENT.search(text):
                continue
            if all(match.end() <= other.start or match.start() >= other.end for other in found):
                found.append(Mention(slot, match.start(), match.end()))
    if any(mention.slot.name == "api rate limit" for mention in found):
        # "100 a minute with a burst of 20" is one rule, not two.
        found = [mention for mention in found if mention.slot.name != "api rate burst"]
    return sorted(found, key=lambda mention: mention.start)
