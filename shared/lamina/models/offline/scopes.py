"""Where a statement holds: everywhere, in a project, or only in this session."""

import re

from lamina.model import Scope
from lamina.models.offline.flat import flat
from lamina.models.offline.lists import sections


def _phrases(section: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sections('scopes')[section])})\b", re.IGNORECASE)


_GLOBAL = _phrases("global")
_SESSION = _phrases("session")
_NAME = r"[\"'«(]?((?-i:[A-Z0-9])[\w.-]*(?:\s(?-i:[A-Z])[\w.-]+){0,2})[\"'»)]?"
_PROJECT = re.compile(
    rf"\b(?:project|proyecto|projeto)(?:\s+(?:called|named|llamado|chamado))?\s*:?\s+{_NAME}"
    rf"|\b(?:the|our|my)\s+{_NAME}\s+project\b",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"\b(?:unlike|as|like|same|compared|contrary|a diferencia|como|igual|al contrario"
    r"|ao contrario|diferente)\b[^,;.]{0,25}$",
    re.I,
)
# "Here are my general preferences." speaks for what follows; "in general I prefer tea" for itself.
_ANNOUNCES = re.compile(
    r":\s*$|\b(?:here|these|following|follow|below|aqui|estas?|siguientes|continuacion|sao|seguintes|seguir)\b",
    re.I,
)
_NOT_NAMES = frozenset(
    ("manager", "management", "plan", "planning", "lead", "owner", "board", "structure", "id", "i", "and")
)


def marked_global(text: str) -> bool:
    """The text says that it holds everywhere."""
    return _GLOBAL.search(flat(text)) is not None


def marked_session(text: str) -> bool:
    """The text says that it holds for now only."""
    return _SESSION.search(flat(text)) is not None


def named_project(text: str, current: str | None) -> str | None:
    """The project the text speaks of; spelt as the current one where it differs in case only."""
    plain = flat(text)
    for found in _PROJECT.finditer(plain):
        group = 1 if found.group(1) else 2
        name = text[found.start(group) : found.end(group)].rstrip(".-")
        if not name or name.split()[0].lower() in _NOT_NAMES or _COMPARED.search(plain[: found.start()]):
            continue
        return current if current is not None and current.casefold() == name.casefold() else name
    if (
        current
        and len(current) > 2
        and re.search(rf"(?<!\w){re.escape(flat(current))}(?!\w)", plain, re.IGNORECASE)
    ):
        return current
    return None


class ScopeTracker:
    """Carries a scope named once over the sentences that follow it in the same message."""

    def __init__(self, project_id: str | None) -> None:
        self._current = project_id
        self._carried: str | None = project_id
        self._everywhere = False

    def read(self, sentence: str) -> None:
        """Take note of a project, or of "in general", that this sentence brings up."""
        project = named_project(sentence, self._current)
        if project is not None:
            self._carried, self._everywhere = project, False
        elif marked_global(sentence) and _ANNOUNCES.search(flat(sentence)):
            self._everywhere = True

    def scope(self, clause: str, sentence: str) -> tuple[Scope, str | None]:
        """The scope of a clause of the sentence read last, with its project."""
        if marked_session(clause):
            return Scope.SESSION, None
        if marked_global(clause) or (
            marked_global(sentence) and named_project(clause, self._current) is None
        ):
            return Scope.GLOBAL, None
        if self._everywhere or self._carried is None:
            return Scope.GLOBAL, None
        return Scope.PROJECT, self._carried
