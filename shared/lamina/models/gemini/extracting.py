"""The task `extract`: what a turn says that is worth remembering."""

import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from lamina.api import EntityView
from lamina.event import Speaker
from lamina.language import detect
from lamina.model import Kind, Scope, Statement, Turn
from lamina.models.gemini.asking import Prompt
from lamina.models.gemini.prompts import EXTRACT_RULES
from lamina.models.gemini.quoting import Said, block, line_of, occurs_in, quote, said_in
from lamina.text import storable

_MOST_KNOWN = 200
_MOST_STATEMENTS = 100
_USERS_ALONE = (Kind.PREFERENCE, Kind.RULE, Kind.VETO)


class Extracted(BaseModel):
    """One statement as the model gives it; nothing in it is trusted."""

    kind: Kind
    scope: Scope
    project: str | None = None
    subject: str
    text: str
    evidence: str
    event: int


class Extraction(BaseModel):
    """The model's answer."""

    statements: list[Extracted]


def extraction_prompt(turn: Turn, known: Sequence[EntityView]) -> Prompt:
    """The prompt for one turn."""
    about = [
        f"time: {turn.occurred_at:%A %Y-%m-%d %H:%M %Z}",
        f"project at hand: {quote(turn.project_id) if turn.project_id else 'none'}",
        f"previous session: {quote(turn.previous_session_id) if turn.previous_session_id else 'none'}",
    ]
    slots = [_known_line(view) for view in known[:_MOST_KNOWN]]
    events = [f"event {number} {line_of(said)}" for number, said in enumerate(said_in(turn))]
    data = "\n\n".join([block("about", about), block("known", slots), block("record", events)])
    return Prompt("extract", EXTRACT_RULES, data)


def statements_of(answer: Extraction, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
    """The statements that the turn supports. Who said them, where and when comes from the turn alone."""
    events = said_in(turn)
    subjects = {_plain(view.subject): view.subject for view in known}
    statements: list[Statement] = []
    for found, source in _supported(answer, events):
        scope, project = _scope(found, turn, source)
        subject = storable(_plain(found.subject))[:200]
        statements.append(
            Statement(
                scope=scope,
                project_id=project,
                kind=found.kind,
                subject=subjects.get(subject, subject),
                text=storable(found.text.strip())[:4000],
                said_by=source.speaker,
                session_id=turn.session_id,
                turn_id=turn.turn_id,
                ordinal=len(statements),
                said_at=source.at,
                language=detect(found.text),
            )
        )
    return tuple(statements)


def _supported(answer: Extraction, events: Sequence[Said]) -> Iterator[tuple[Extracted, Said]]:
    """Each distinct statement whose evidence stands in what a person or the agent said, with that event."""
    seen: set[tuple[str, str]] = set()
    for found in answer.statements[:_MOST_STATEMENTS]:
        source = _source(found, events)
        key = (_plain(found.subject), _plain(found.text))
        if source is None or not all(key) or key in seen:
            continue
        seen.add(key)
        yield found, source


def _source(found: Extracted, events: Sequence[Said]) -> Said | None:
    """The event that says so. The model's own pointer is tried first: it may be off by one."""
    speakers = (Speaker.USER,) if found.kind in _USERS_ALONE else (Speaker.USER, Speaker.AGENT)
    named = tuple(events[found.event : found.event + 1]) if found.event >= 0 else ()
    others = [event for speaker in speakers for event in events if event.speaker is speaker]
    for event in (*named, *others):
        if event.speaker in speakers and occurs_in(found.evidence, event.text):
            return event
    return None


def _scope(found: Extracted, turn: Turn, source: Said) -> tuple[Scope, str | None]:
    """The scope, never wider than the model's: a project that nobody named leaves only the session."""
    if found.scope is not Scope.PROJECT:
        return found.scope, None
    named = storable((found.project or "").strip())[:256]
    at_hand = turn.project_id
    if at_hand and (not named or named.casefold() == at_hand.casefold()):
        return Scope.PROJECT, at_hand
    if named and named.isprintable() and occurs_in(named, source.text):
        return Scope.PROJECT, named
    return (Scope.PROJECT, at_hand) if at_hand else (Scope.SESSION, None)


def _known_line(view: EntityView) -> str:
    where = f"project {quote(view.project_id)}" if view.project_id else view.scope.value
    return f"subject {quote(view.subject)} ({view.kind.value}, {where}): {quote(view.text, 300)}"


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()
