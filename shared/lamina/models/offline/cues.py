"""The words that say what kind of statement a clause is, in English, Spanish and Portuguese.

They are listed in `data/cues.*.txt`, a file a language, and matched against flat text (see `flat`).
"""

import re
from enum import StrEnum

from lamina.model import Kind
from lamina.models.offline.lists import sections


class Label(StrEnum):
    """What a clause is. Finer than `Kind`: an opinion is told from a fact, a promise from a decision."""

    VETO = "veto"
    RULE = "rule"
    PREFERENCE = "preference"
    DECISION = "decision"
    COMMITMENT = "commitment"
    OPINION = "opinion"
    FACT = "fact"

    @property
    def kind(self) -> Kind:
        """The memory kind: a commitment is a decision to act, an opinion the fact that somebody holds it."""
        return {Label.COMMITMENT: Kind.DECISION, Label.OPINION: Kind.FACT}.get(self) or Kind(self.value)


Patterns = dict[str, re.Pattern[str]]
"""A pattern for each language."""

SUPPORTED = ("en", "es", "pt")
"""The languages there are cues for."""


def _cue(section: str) -> Patterns:
    return {
        language: re.compile("|".join(sections(f"cues.{language}")[section]), re.IGNORECASE)
        for language in SUPPORTED
    }


VETO = _cue("veto")
RULE = _cue("rule")
FROM_NOW_ON = _cue("from-now-on")
"""Makes a rule of what is neither a plan nor a promise: "from now on, answer in Spanish"."""
PREFERENCE = _cue("preference")
EXPLICIT_DECISION = _cue("explicit-decision")
"""Said so in so many words: outranks the weaker cues."""
DECISION = _cue("decision")
COMMITMENT = _cue("commitment")
OPINION = _cue("opinion")
EXPLICIT_FACT = _cue("explicit-fact")
STATE = _cue("state")
"""A finite verb that says how things are; what it says must be concrete too (see `labels`)."""
PERSONAL = _cue("personal")
HYPOTHETICAL = _cue("hypothetical")
REQUEST = _cue("request")
"""A request for work, which is nothing to remember."""
CHOOSES = _cue("chooses")
"""A verb of choosing: with a known value after it, the clause is a decision (see `slots`)."""


def matches(patterns: Patterns, text: str, languages: tuple[str, ...]) -> re.Match[str] | None:
    """The first match in any of these languages."""
    for language in languages:
        if found := patterns[language].search(text):
            return found
    return None
