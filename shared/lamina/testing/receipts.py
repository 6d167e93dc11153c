"""The index of dead letters and the reader of receipts in this process."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lamina.errors import DependencyUnavailable
from lamina.model import SessionKey
from lamina.ports import Evidence, IndexedLetter


@dataclass
class InMemoryDeadLetterIndex:
    """Implements `lamina.ports.DeadLetterIndex`."""

    letters: dict[tuple[str, ...], IndexedLetter] = field(
        default_factory=dict[tuple[str, ...], IndexedLetter]
    )
    down: bool = False
    """While True, every call raises DependencyUnavailable."""

    async def record(self, letter: IndexedLetter) -> None:
        """See `DeadLetterIndex.record`."""
        if self.down:
            raise DependencyUnavailable("database", "connection refused")
        key = (letter.app, letter.user_id, letter.session_id, letter.turn_id, letter.subscription)
        known = self.letters.get(key)
        if known is None or _age(letter) > _age(known):
            self.letters[key] = letter


@dataclass
class InMemoryReceipts:
    """Implements `lamina.ports.ReceiptReader` over given evidence, and the letters of an index."""

    index: InMemoryDeadLetterIndex = field(default_factory=InMemoryDeadLetterIndex)
    known: dict[tuple[SessionKey, str], Evidence] = field(
        default_factory=dict[tuple[SessionKey, str], Evidence]
    )
    down: bool = False
    """While True, every call raises DependencyUnavailable."""

    async def sessions_of(self, app: str, user_id: str, turn_id: str) -> Sequence[str]:
        """See `ReceiptReader.sessions_of`."""
        self._answer_or_raise()
        held = {
            session.session_id
            for session, turn in self.known
            if (session.app, session.user_id, turn) == (app, user_id, turn_id)
        }
        return sorted(held | {each.session_id for each in self._letters(app, user_id, turn_id)})

    async def evidence(self, session: SessionKey, turn_id: str) -> Evidence:
        """See `ReceiptReader.evidence`."""
        self._answer_or_raise()
        letters = [
            each
            for each in self._letters(session.app, session.user_id, turn_id)
            if each.session_id in (session.session_id, "")
        ]
        found = self.known.get((session, turn_id), Evidence())
        ordered = sorted(letters, key=lambda each: (each.parked_at, each.subscription))
        return replace(found, letters=tuple(ordered))

    def _letters(self, app: str, user_id: str, turn_id: str) -> list[IndexedLetter]:
        wanted = (app, user_id, turn_id)
        return [
            each for each in self.index.letters.values() if (each.app, each.user_id, each.turn_id) == wanted
        ]

    def _answer_or_raise(self) -> None:
        if self.down:
            raise DependencyUnavailable("database", "connection refused")


def _age(letter: IndexedLetter) -> tuple[object, int]:
    return (letter.parked_at, letter.failures)
