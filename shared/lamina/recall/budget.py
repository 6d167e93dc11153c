"""Which memories go into a prompt of limited size.

Each section is promised a share, what one leaves over goes to the others, and inside a section the most
valuable memory for its size comes first. Rules and vetoes are not here: they are in whatever the size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_SMALLEST = 40
"""Tokens below which being shorter earns nothing: else small talk would crowd out answers."""


@dataclass(frozen=True)
class Offer:
    """A memory that may go in."""

    tokens: int
    value: float = 0.0


@dataclass(frozen=True)
class Section:
    """The offers of one kind, best first."""

    name: str
    share: float
    """Of the budget, before the leftovers are given out."""
    offers: Sequence[Offer] = ()
    unbroken: bool = False
    """Take from the first on, and stop at the first that does not fit: a conversation has no holes."""


def fill(budget: int, sections: Sequence[Section]) -> dict[str, list[int]]:
    """The indices of the chosen offers by section, in the offers' own order; never over `budget` tokens.

    Leftovers are given out in the order of the sections.
    """
    left = max(0, budget)
    chosen: dict[str, list[int]] = {section.name: [] for section in sections}
    for section in sections:
        taken, spent = _take(section, set(), min(left, int(max(0, budget) * section.share)))
        chosen[section.name] = taken
        left -= spent
    for section in sections:
        taken, spent = _take(section, set(chosen[section.name]), left)
        chosen[section.name] = sorted([*chosen[section.name], *taken])
        left -= spent
    return chosen


def _take(section: Section, already: set[int], budget: int) -> tuple[list[int], int]:
    taken: list[int] = []
    spent = 0
    for index in _by_worth(section):
        if index in already:
            continue
        tokens = section.offers[index].tokens
        if spent + tokens <= budget:
            taken.append(index)
            spent += tokens
        elif section.unbroken:
            break
    return sorted(taken), spent


def _by_worth(section: Section) -> list[int]:
    """Indices by value per token, damped by a square root so that one long answer beats many asides."""
    indices = list(range(len(section.offers)))
    if section.unbroken:
        return indices
    return sorted(indices, key=lambda i: -_worth(section.offers[i]))


def _worth(offer: Offer) -> float:
    return offer.value / math.sqrt(max(offer.tokens, _SMALLEST))
