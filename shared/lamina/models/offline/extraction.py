"""What a turn says that is worth remembering: typed rules over sentences, in three languages.

A pure function of the turn. What is already known is not looked at, so that turns may arrive in any order.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from lamina.event import Event, Speaker
from lamina.language import detect
from lamina.model import Scope, Statement, Turn
from lamina.models.offline.clauses import Item, clauses, items
from lamina.models.offline.cues import SUPPORTED, Label
from lamina.models.offline.flat import flat
from lamina.models.offline.labels import agent_label, label
from lamina.models.offline.scopes import ScopeTracker
from lamina.models.offline.sentences import Sentence, sentences
from lamina.models.offline.subjects import subject
from lamina.models.offline.times import annotate
from lamina.models.offline.words import keywords

_PASTE = 2_500
"""Characters from which on a message is taken for a pasted document."""
_BARE_WORDS = 6
"""A list item of so few words is what the line above the list says it is."""
_MOST = 200
"""Statements of one turn: more is a paste that got through."""
_READ = 300_000
"""Characters of one turn that are read for statements."""


@dataclass(frozen=True)
class Found:
    """A statement before it is bound to a turn."""

    label: Label
    scope: Scope
    project_id: str | None
    subject: str
    text: str
    language: str


def extract_turn(turn: Turn) -> tuple[Statement, ...]:
    """The statements of a turn, in the order they were said; tools' output yields none."""
    statements: list[Statement] = []
    left = _READ
    for event in turn.events:
        speaker = event.speaker
        if speaker is Speaker.TOOL:
            continue
        said_at = said_at_of(event, turn)
        for text in event.texts():
            if len(statements) >= _MOST or left <= 0:
                break
            for found in find(text[:left], speaker, said_at, turn.project_id, turn.previous_session_id):
                statements.append(
                    Statement(
                        scope=found.scope,
                        project_id=found.project_id,
                        kind=found.label.kind,
                        subject=found.subject,
                        text=found.text,
                        said_by=speaker,
                        session_id=turn.session_id,
                        turn_id=turn.turn_id,
                        ordinal=len(statements),
                        said_at=said_at,
                        language=found.language,
                    )
                )
            left -= len(text)
    return tuple(statements[:_MOST])


def said_at_of(event: Event, turn: Turn) -> datetime:
    """The event's own timestamp (seconds since 1970) where it has a plausible one, else the turn's."""
    stamp = event.root.get("timestamp")
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or not 0 < stamp < 1e11:
        return turn.occurred_at
    return datetime.fromtimestamp(stamp, UTC)


def find(
    text: str,
    speaker: Speaker,
    at: datetime,
    project_id: str | None = None,
    previous_session_id: str | None = None,
) -> Iterator[Found]:
    """The statements in one message, in order, each once."""
    if speaker is Speaker.TOOL:
        return
    whole = detect(text)
    tracker = ScopeTracker(project_id)
    seen: set[tuple[str, str]] = set()
    header_read = ""
    for sentence in sentences(text):
        if sentence.header and sentence.header != header_read:
            header_read = sentence.header
            tracker.read(header_read)
        tracker.read(sentence.text)
        language = _language(sentence.text, whole)
        for what, item in _labelled(sentence, speaker, language, pasted=len(text) > _PASTE):
            scope, project = tracker.scope(item.text, sentence.text)
            names = tuple(name for name in (project_id, project) if name)
            words = item.text if what.kind.pinned else annotate(item.text, at, previous_session_id)
            found = Found(
                what, scope, project, subject(item.text, what, item.mention, names), words, language
            )
            if (found.subject, found.text) not in seen:
                seen.add((found.subject, found.text))
                yield found


def _language(text: str, whole: str) -> str:
    own = detect(text)
    return own if own in SUPPORTED or whole not in SUPPORTED else whole


def _labelled(
    sentence: Sentence, speaker: Speaker, language: str, *, pasted: bool
) -> Iterator[tuple[Label, Item]]:
    """Each thing the sentence says, with its label. A clause without one belongs to the clause before."""
    languages = (language,) if language in SUPPORTED else SUPPORTED
    judge = label if speaker is Speaker.USER else agent_label
    pending: list[tuple[Label | None, str]] = []
    for clause in clauses(sentence.text):
        what = judge(clause, languages, asked=sentence.asked, pasted=pasted)
        if what is None and pending:
            # Words in between are kept as they were written.
            start = sentence.text.index(pending[-1][1])
            end = sentence.text.index(clause, start) + len(clause)
            pending[-1] = (pending[-1][0], sentence.text[start:end])
        else:
            pending.append((what, clause))
    inherited = judge(sentence.header, languages) if sentence.header else None
    for what, clause in pending:
        binds = what is not None and what.kind.pinned
        if inherited is not None and not binds and (what is None or len(clause.split()) <= _BARE_WORDS):
            yield from _items(inherited, f"{sentence.header} {clause}", languages)
        elif what is not None:
            yield from _items(what, clause, languages)


_OPENER = re.compile(
    r"^(?:(?:also|besides|additionally|furthermore|moreover|and|but|so|finally|lastly|oh|well|ok(?:ay)?"
    r"|one more thing"
    r"|ademas|tambien|y|pero|asi que|por ultimo|finalmente|bueno|vale|otra cosa"
    r"|alem disso|tambem|e|mas|entao|por fim|bom|outra coisa)\b[,:]?\s+)+(?=\S+\s)",
    re.IGNORECASE,
)


def _items(what: Label, clause: str, languages: tuple[str, ...]) -> Iterator[tuple[Label, Item]]:
    clause = clause.strip(" ,;–—-")
    if opener := _OPENER.match(flat(clause)):
        clause = clause[opener.end() :]
    if not _says_something(clause):
        return
    if what in (Label.VETO, Label.OPINION, Label.COMMITMENT):
        yield what, Item(clause, None)
        return
    pieces = items(clause)
    if len(pieces) == 1:
        yield what, pieces[0]
        return
    # A limit in the list makes the whole look like a rule: the others are judged without it.
    others = label(next((piece.text for piece in pieces if not piece.limit), ""), languages)
    for piece in pieces:
        yield (Label.RULE if piece.limit else others or Label.DECISION), piece


def _says_something(clause: str) -> bool:
    """A bare announcement ("My preferences:") is no statement."""
    return not clause.endswith(":") and bool(keywords(clause, numbers=True))
