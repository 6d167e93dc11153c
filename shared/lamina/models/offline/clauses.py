"""Cuts a sentence where it starts to say something else, and a list into its items."""

import re
from dataclasses import dataclass
from itertools import pairwise

from lamina.models.offline.flat import flat
from lamina.models.offline.lists import sections
from lamina.models.offline.slots import Mention, Nature, mentions

_CLAUSE_START = rf"(?:{'|'.join(sections('clauses')['start'])})"
_CLAUSE_CUT = re.compile(
    r"(?:\s*[,—–]\s*|\s+)(?:and|but|so|while|y|e|pero|mas|ademas|tambien|alem disso)\s+"
    rf"(?={_CLAUSE_START})|\s*(?:,|—|–)\s+(?={_CLAUSE_START})|\s+\((?={_CLAUSE_START})",
    re.IGNORECASE,
)
_PREPOSITION = r"(?:with|on|in|using|via|to|from|con|sobre|en|usando|com|em|no|na|numa|sob|by)"
_COMMA = re.compile(r"\s*,\s*(?:(?:and|or|y|e|o|ou)\s+)?|\s+(?:and|plus|y|e)\s+|\s+[+&·|/]\s+", re.IGNORECASE)
_LIMIT_LEAD = re.compile(rf"^{_PREPOSITION}\s+(?:(?:a|an|the|un|una|el|la|um|uma|o)\s+)?", re.IGNORECASE)
_OWN_SUBJECT = re.compile(r"(?:i|we|my|our|yo|mi|mis|eu|meu|minha|nos)\b", re.IGNORECASE)
_CONNECTOR = re.compile(rf"\s+(?={_PREPOSITION}\s)", re.IGNORECASE)
_STARTS_WITH_CONNECTOR = re.compile(rf"{_PREPOSITION}\s+", re.IGNORECASE)
_ENDS_WITH_CONNECTOR = re.compile(rf"\s+{_PREPOSITION}$", re.IGNORECASE)
_ENDS_WITH_BE = re.compile(r"\b(?:is|are|be|runs?|es|son|corre|é|sao|roda)$", re.IGNORECASE)
_ARTICLE = re.compile(r"\s+(?:a|an|the|el|la|los|las|un|una|o|os|as|um|uma)$", re.IGNORECASE)
_CLAUSE_WORDS = 3
_OPENING_WORDS = 7
_OPENING = re.compile(
    r"(?:for|in|on|at|when|whenever|if|from|before|after|while|as|with|unless|since|para|en|cuando|si|a|de|desde|antes"
    r"|despues|mientras|como|por|con|quando|se|em|no|na|nos|nas|depois|enquanto|com|caso|sempre que)\b"
    r"(?!.*\b(?:i|we|prefiero|prefiro)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Item:
    """A piece of a clause that says one thing."""

    text: str
    mention: Mention | None
    """The slot it fills; positions are the clause's."""
    limit: bool = False


def clauses(sentence: str) -> list[str]:
    """The sentence cut before each new clause that could be a statement of its own."""
    pieces: list[str] = []
    start = 0
    for cut in _CLAUSE_CUT.finditer(flat(sentence)):
        piece = sentence[start : cut.start()]
        words = len(piece.split())
        # "Honestly, I think", "from now on, use": an opening, not a clause.
        if words < _CLAUSE_WORDS or (words < _OPENING_WORDS and _OPENING.match(flat(piece))):
            continue
        pieces.append(sentence[start : cut.start()])
        start = cut.end()
    pieces.append(sentence[start:])
    return [piece.strip() for piece in pieces if piece.strip()]


def items(clause: str) -> list[Item]:
    """The clause cut between values of different slots, the words before the first repeated for each.

    "I use Python with FastAPI" gives "I use Python" and "I use FastAPI"; a limit stands as it was written.
    """
    found = mentions(clause)
    boundaries = _boundaries(clause, found)
    if not boundaries:
        return [Item(clause, found[0] if found else None, _has_limit(found))]
    edges = [0, *boundaries, len(clause)]
    lead = _ARTICLE.sub("", clause[: found[0].start].rstrip())
    cut: list[Item] = []
    for start, end in pairwise(edges):
        segment = clause[start:end].strip()
        inside = [mention for mention in found if start <= mention.start < end]
        bare = _COMMA.sub("", segment, count=1) if _COMMA.match(segment) else segment
        bare = re.sub(
            r"^(?:and|plus|y|e)\s+", "", bare.rstrip(" ,").lstrip(" ,+&·|/"), flags=re.IGNORECASE
        ).strip()
        if not bare:
            continue
        limit = _has_limit(inside)
        if limit and start:
            bare = _LIMIT_LEAD.sub("", bare)
        elif start and not _OWN_SUBJECT.match(bare):
            bare = _joined(lead, bare)
        cut.append(Item(bare, inside[0] if inside else None, limit))
    return cut


def _has_limit(found: list[Mention]) -> bool:
    return any(mention.slot.nature is Nature.LIMIT for mention in found)


def _boundaries(clause: str, found: list[Mention]) -> list[int]:
    """Where one slot's value ends and the next begins."""
    cuts: list[int] = []
    plain = flat(clause)
    for before, after in pairwise(found):
        if before.slot.name == after.slot.name:
            continue
        gap = plain[before.end : after.start]
        commas = list(_COMMA.finditer(gap))
        if commas:
            # What stands between two commas is an item too: "dark mode, vim keys, Python".
            cuts.append(before.end + commas[0].start())
            cuts.extend(
                before.end + later.start()
                for earlier, later in pairwise(commas)
                if later.start() - earlier.end() > 1
            )
        elif connector := _CONNECTOR.search(gap):
            cuts.append(before.end + connector.end())
    return cuts


def _joined(lead: str, item: str) -> str:
    """The item after the words it shares with the first one."""
    connector = _STARTS_WITH_CONNECTOR.match(flat(item))
    if not lead:
        return item
    if connector is None:
        return f"{lead} {item}"
    if _ENDS_WITH_CONNECTOR.search(flat(lead)):
        return f"{_ENDS_WITH_CONNECTOR.sub('', lead)} {item}"
    return f"{lead} {item if _ENDS_WITH_BE.search(flat(lead)) else item[connector.end() :]}"
