"""Decides what kind of statement a clause is, or that it is none."""

import re

from lamina.models.offline import cues
from lamina.models.offline.cues import Label, matches
from lamina.models.offline.flat import flat
from lamina.models.offline.slots import Mention, Nature, mentions
from lamina.models.offline.words import is_generic

_PROMISE = re.compile(
    r"\b(?:promis|commit(?:ted|ting)?\s+to|promet|promess|promes|compromet|told\s+(?:\S+\s+){1,2}?(?:i|we)\s+would|le\s+dije)\w*",
    re.IGNORECASE,
)
_UNIVERSAL = re.compile(
    r"\b(?:every|all|each|any|always|never|cada|tod[oa]s?|siempre|nunca|sempre|qualquer|cualquier)\b", re.I
)
_QUOTED = re.compile(r"\"[^\"]{12,}\"|'(?<=\s')[^']{12,}'(?=[\s.,;:!?]|$)|«[^»]{12,}»")

# A subject that only the sentence before makes clear.
_POINTS_BACK = re.compile(
    r"^(?:(?:and|but|so|also|y|pero|e|mas|porque|because)\s+)?(?:it|that|this|these|those|they|he|she|there|here"
    r"|eso|esto|ese|esta|este|esa|ella|ellos|ellas|alli|aqui|isso|isto|ele|ela|eles|elas|aquilo|la cual"
    r"|lo que|which|who|where|what|when|how|que|como|cuando|quando|donde|onde)\b"
    r"(?!\s+(?:session|sesion|sessao|project|proyecto|projeto|year|ano|month|mes|week|semana|sprint|release"
    r"|version|api|app|team|equipo|equipe|repo)\b)|^(?:it|that|there|he|she|they)'",
    re.IGNORECASE,
)
_MONTHS = (
    r"jan(?:uary|eiro)?|feb(?:ruary|rero)?|fev(?:ereiro)?|mar(?:ch|zo|co)|apr(?:il)?|abril|mayo|maio|june?|juni?o"
    r"|jul(?:y|io|ho)?|aug(?:ust)?|ago(?:sto)?|sept?(?:ember|iembre)?|setembro|oct(?:ober|ubre)?|outubro"
    r"|nov(?:ember|iembre|embro)?|dec(?:ember)?|dic(?:iembre)?|dez(?:embro)?"
)
_NUMBERS = (
    r"two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|twenty|hundred|thousand|million"
    r"|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|doce|veinte|cien|mil|millon"
    r"|dois|duas|quatro|sete|oito|nove|dez|doze|vinte|cem|milhao"
)
_CONCRETE = re.compile(
    rf"\d|\b(?-i:[A-Z])[\w'-]+|\b(?:{_MONTHS})\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day|[%$€£°]"
    rf"|\b(?:one|half|twice|{_NUMBERS})\b",
    re.IGNORECASE,
)
_VERB_FIRST = re.compile(
    r"^(?:es|son|está|estan|era|fue|tiene|tienen|hay|funciona|dice|usa|é|sao|foi|tem|ha|diz|fica)\s", re.I
)
# "The new hall seats 300 people", "Noor's flight lands at 18:40": a named thing and a number.
_MEASURED = re.compile(
    r"^(?:the|our|my|el|la|los|las|nuestr[oa]s?|mis?|o|a|os|as|noss[oa]s?|meus?|minhas?"
    r"|(?-i:[A-Z])[\w-]+'s|(?-i:[A-Z])\w+\s(?-i:[A-Z])\w+)\s+\S+\s+\S+\s.*(?:\d"
    rf"|\b(?:{_NUMBERS})\b)",
    re.IGNORECASE,
)
_INCIDENT = re.compile(
    r"\b(?:hit|failed|crashed|threw|timed out|fallo|se cayo|falhou|caiu|deu erro|dio error)\b", re.I
)
_UNTIL = re.compile(r"\b(?:we have until|tenemos hasta|temos ate|due (?:on|by)|vence el)\b", re.IGNORECASE)
_MAX_STYLE_WORDS = 9
# One person's habit is a preference; what "we" use is decided.
_MY_HABIT = re.compile(
    r"\bi\s+(?:\w+ly\s+|always\s+)?(?:use|write|code|work\s+with)\b"
    r"|\b(?:uso|utilizo|escribo|programo|escrevo|trabajo\s+con|trabalho\s+com)\b",
    re.IGNORECASE,
)
_AGENT_STATES = re.compile(
    r"^(?:\W*(?:final |agreed )?(?:decision|decided|fact|confirmed|hecho|confirmado|decisao|fato)\s*:)"
    r"|\bwe(?:'ve| have)? (?:decided|agreed)\b|\b(?:decidimos|acordamos|hemos decidido"
    r"|combinamos|ficou decidido)\b",
    re.IGNORECASE,
)


def label(
    clause: str, languages: tuple[str, ...], *, asked: bool = False, pasted: bool = False
) -> Label | None:
    """What the clause states, in the words of these languages; None for a question, a request or small talk.

    In a long message, which is mostly `pasted`, a plain fact counts only where it is marked as one.
    """
    if asked:
        return None
    text = flat(clause)
    for quoted in _QUOTED.finditer(text):  # somebody else's words, whatever they say
        blank = "_" * len(quoted.group())
        text = text[: quoted.start()] + blank + text[quoted.end() :]
        clause = clause[: quoted.start()] + blank + clause[quoted.end() :]
    binding = _binding(text, clause, languages)
    if binding is not None and not matches(cues.EXPLICIT_DECISION, text, languages):
        return binding
    meant = _PROMISE.search(text) or matches(cues.OPINION, text, languages)
    supposed = matches(cues.HYPOTHETICAL, text, languages) and not meant
    if supposed or matches(cues.REQUEST, text, languages):
        return None
    stated = _stated(text, clause, languages, binding)
    unmarked = stated is Label.FACT and pasted and not matches(cues.PERSONAL, text, languages)
    return None if unmarked else stated


def agent_label(
    clause: str, languages: tuple[str, ...], *, asked: bool = False, pasted: bool = False
) -> Label | None:
    """The same for an agent's words, which count only where they say outright that they decide or state."""
    del languages, pasted  # its few phrases are looked for in every language
    if asked or not (stated := _AGENT_STATES.search(flat(clause))):
        return None
    is_fact = re.search(r"fact|confirm|hecho|fato", stated.group(), re.IGNORECASE)
    return Label.FACT if is_fact else Label.DECISION


def _binding(text: str, clause: str, languages: tuple[str, ...]) -> Label | None:
    """A veto or a rule. Both are looked for even in requests: "fix it, but never touch main"."""
    if matches(cues.VETO, text, languages):
        # "Must never exceed 30 seconds" sets a limit: said again with another number, it is superseded.
        return Label.RULE if _capped(mentions(clause)) else Label.VETO
    if matches(cues.PREFERENCE, text, languages):
        return None
    if matches(cues.RULE, text, languages):
        return Label.RULE
    planned = matches(cues.DECISION, text, languages) or matches(cues.COMMITMENT, text, languages)
    return Label.RULE if matches(cues.FROM_NOW_ON, text, languages) and not planned else None


def _stated(text: str, clause: str, languages: tuple[str, ...], binding: Label | None) -> Label | None:
    found = mentions(clause)
    if matches(cues.EXPLICIT_DECISION, text, languages) and not _PROMISE.search(text):
        capped = _capped(found)
        return (binding if capped or binding is Label.VETO else None) or (
            Label.RULE if capped and _UNIVERSAL.search(text) else Label.DECISION
        )
    if matches(cues.PREFERENCE, text, languages):
        return Label.PREFERENCE
    if _PROMISE.search(text) and matches(cues.COMMITMENT, text, languages):
        return Label.COMMITMENT
    if found and (of_slot := _of_slot(found, text, languages)):
        return of_slot
    for patterns, outcome in (
        (cues.DECISION, Label.DECISION),
        (cues.OPINION, Label.OPINION),
        (cues.COMMITMENT, Label.COMMITMENT),
    ):
        if matches(patterns, text, languages):
            return outcome
    return Label.FACT if _is_fact(text, languages) else None


def _of_slot(found: list[Mention], text: str, languages: tuple[str, ...]) -> Label | None:
    """What a known subject makes of a clause with no cue of its own."""
    first = found[0]
    if _capped(found):
        return Label.RULE if len(found) == 1 or first.slot.nature is Nature.LIMIT else Label.DECISION
    if matches(cues.OPINION, text, languages) or _POINTS_BACK.search(text):
        return None
    if first.slot.name.startswith("user "):
        return Label.FACT
    if first.slot.nature is Nature.STYLE:
        return Label.PREFERENCE if len(text.split()) <= _MAX_STYLE_WORDS else None
    chooses = matches(cues.CHOOSES, text[: first.start], languages)
    if chooses and _MY_HABIT.search(text[: first.start]):
        return Label.PREFERENCE
    bare = all(word[:1].isupper() or len(word) < 5 or is_generic(word) for word in _outside(found, text))
    return Label.DECISION if chooses or bare else None


def _capped(found: list[Mention]) -> bool:
    return any(mention.slot.nature is Nature.LIMIT for mention in found)


def _outside(found: list[Mention], text: str) -> list[str]:
    """The words of the text that are no slot's value."""
    for mention in reversed(found):
        text = text[: mention.start] + " " + text[mention.end :]
    return [word.strip(".,;:()") for word in text.split()]


def _is_fact(text: str, languages: tuple[str, ...]) -> bool:
    if matches(cues.EXPLICIT_FACT, text, languages):
        return True
    if _POINTS_BACK.search(text) or _VERB_FIRST.search(text):
        return False
    if matches(cues.PERSONAL, text, languages) or (_UNTIL.search(text) and _CONCRETE.search(text)):
        return True
    if _MEASURED.search(text) and not _INCIDENT.search(text):
        return True
    state = matches(cues.STATE, text, languages)
    if state is None or re.match(r"(?:i|we|you|yo|tu|eu|voce|nos)\b", text, re.IGNORECASE):
        return False
    return bool(_CONCRETE.search(text, state.end()))
