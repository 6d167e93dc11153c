"""Names the slot a statement fills: a known subject, or a key made of its content words.

The same thing said later with another value must land in the same slot; different things never must. Where
the words do not tell, the key holds them all: two statements too many are better than one lost.
"""

import re

from lamina.models.offline.cues import Label
from lamina.models.offline.flat import flat
from lamina.models.offline.slots import Mention, Nature
from lamina.models.offline.words import canonical, fold, keywords, listed

_LIMIT = 8
"""Content words in a key."""

_HOLDER = re.compile(
    r"^((?-i:[A-Z])[\w'-]+(?:\s(?-i:[A-Z])[\w'-]+)?)(?:'s)?\s+(?:\w+\s+){0,2}?(?:prefers?|likes?|loves?|hates?|dislikes?"
    r"|wants?|favou?rs|told|said|says|asked|insists|enjoys|prefiere|quiere|odia|adora|dijo|pidio"
    r"|prefere|quer|gosta|odeia|disse|pediu|would|'d)\b",
    re.IGNORECASE,
)
_NOT_HOLDERS = listed("no-holder")
_PURPOSE = re.compile(r"\b(?:for|para|pra)\s+([^,.;:()]{2,60})", re.IGNORECASE)
_REASON = re.compile(
    r"\s*(?:its|their|his|her|su|sus|seu|sua|being|reasons?|que\b|now\b|the time being|this session)", re.I
)
_GENERIC = listed("generic")
_TIMEOUT_WORDS = listed("timeout")
_NEGATED = re.compile(
    r"\b(?:not|don't|doesn't|never|no|hate|dislike|can't\ stand|nao|odio|odeio|detesto|nunca|stop|without)\b",
    re.I,
)
_BINARY = ("ui theme", "indentation", "type hints", "response length", "response language")
_BE = re.compile(
    r"\s(?:is|are|was|will be|es|son|está|fue|sera|é|sao|foi)\s+(?:at\s+|of\s+|de\s+|a\s+)?", re.IGNORECASE
)
_DATE_VALUE = re.compile(
    r"^\W*(?:(?:on|el|em|no|dia)\s+)*(?:\d{4}-\d\d|\d{1,2}\s+(?:de\s+)?[a-z]{3,10}\b"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\s+\d|\w+day\b)",
    re.IGNORECASE,
)
_AMOUNT_VALUE = re.compile(
    r"^\W*(?:about|around|unos|cerca de)?\s*[$€£]?\d[\d.,–-]*\s?(°?[a-z%°]+)?", re.IGNORECASE
)
_ATTRIBUTE = listed("attribute")


_FAMILIES = {Label.VETO: "never: ", Label.OPINION: "opinion: ", Label.COMMITMENT: "promise: "}
"""Labels that never fill a known slot: "never use MySQL" is no choice of a database."""


def subject(text: str, label: Label, mention: Mention | None, project_names: tuple[str, ...] = ()) -> str:
    """The slot's name: at most 200 characters, lower case."""
    plain = flat(text)
    if (family := _FAMILIES.get(label)) is not None:
        return _key(family, keywords(text), text)
    holder = _holder(plain, project_names)
    prefix = f"{holder}: " if holder else ""
    if mention is not None:
        return (prefix + _known(text, plain, label, mention, project_names))[:200]
    if label is Label.FACT and (attribute := _attribute(plain)):
        return _key(prefix, attribute, text)
    if label is Label.DECISION and (purpose := _purpose(plain, project_names)) and len(purpose) > 1:
        return _key(prefix, purpose, text)
    names = {fold(name) for name in project_names}
    return _key(prefix, tuple(word for word in keywords(text) if word not in names), text)


def _key(prefix: str, words: tuple[str, ...], text: str) -> str:
    """Sorted, so that another word order or language makes the same key."""
    body = " ".join(sorted(words[:_LIMIT])) or " ".join(fold(text).split())[:120]
    return (prefix + (body or "?"))[:200]


def _holder(plain: str, project_names: tuple[str, ...]) -> str:
    """Somebody else whose preference this is: theirs must not supersede the user's own."""
    found = _HOLDER.match(plain)
    name = found.group(1).lower() if found else ""
    words = name.split()
    if not words or words[0] in _NOT_HOLDERS or name in {fold(project) for project in project_names}:
        return ""
    return " ".join(word for word in words if word not in _NOT_HOLDERS)


def _known(text: str, plain: str, label: Label, mention: Mention, project_names: tuple[str, ...]) -> str:
    name, nature = mention.slot.name, mention.slot.nature
    if name == "timeout":
        words = [word for word in keywords(text) if word not in _TIMEOUT_WORDS][:2]
        return " ".join([*sorted(words), name])
    if label is Label.PREFERENCE and name not in _BINARY and _NEGATED.search(plain):
        return f"{name}: not {' '.join(sorted(keywords(text)[:3]))}"
    if nature is Nature.STYLE:
        return name
    purpose = _purpose(plain, project_names)
    return f"{name} ({' '.join(sorted(purpose))})" if 0 < len(purpose) <= 3 else name


def _purpose(plain: str, project_names: tuple[str, ...]) -> tuple[str, ...]:
    """What something is for, where that tells two of a kind apart: "Redis for sessions"."""
    names = {word for name in project_names for word in keywords(name)}
    for found in _PURPOSE.finditer(plain):
        if _REASON.match(found.group(1)):
            continue
        words = keywords(found.group(1))
        kept = tuple(word for word in words if word not in _GENERIC and word not in names)
        if kept and len(kept) == len(words):
            return kept
    return ()


def _attribute(plain: str) -> tuple[str, ...]:
    """The thing and the attribute that a fact gives a value, where it is that kind of fact."""
    be = _BE.search(plain)
    if be is None:
        return ()
    head, tail = keywords(plain[: be.start()]), plain[be.end() :]
    if not 1 <= len(head) <= 6:
        return ()
    if set(head) & _ATTRIBUTE and len(head) > 1:
        return head
    if _DATE_VALUE.match(tail):
        return (*head, "date")
    amount = _AMOUNT_VALUE.match(tail)
    if amount and len(head) > 1:
        return (*head, canonical(amount.group(1))) if amount.group(1) else head
    return ()
