"""What a user had forgotten: tombstones, and what they keep out. Pure.

A tombstone is for good. It names what is forgotten and never holds a word of it.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import AwareDatetime

from lamina.errors import Forgotten
from lamina.model import Frozen, SessionKey, Statement, SummaryLine, Turn, derived_id
from lamina.reconcile import normalised

Reach = Literal["user", "session", "project", "turn", "slot", "words"]


class Tombstone(Frozen):
    """Something is forgotten up to a moment; what comes later is new and welcome.

    scope      owner        name                    forgets
    user       ''           ''                      every turn
    session    session id   ''                      the session's turns
    project    project id   ''                      the turns that name the project
    turn       session id   turn id                 that turn, whatever date it comes under
    slot       entity id    slot_id                 what was said in the slot
    words      session id   words_id ':' turn id    those words of that turn, in whatever slot
    """

    scope: Reach
    owner: str = ""
    name: str = ""
    forgotten_at: AwareDatetime

    def hits(self, turn: Turn) -> bool:
        """Whether it forgets the turn."""
        return self.covers(turn.session_id, turn.turn_id, turn.project_id, turn.occurred_at)

    def covers(self, session_id: str, turn_id: str, project_id: str | None, at: datetime) -> bool:
        """Whether it forgets the turn of these names and moment."""
        match self.scope:
            case "user":
                return at <= self.forgotten_at
            case "session":
                return self.owner == session_id and at <= self.forgotten_at
            case "project":
                return self.owner == project_id and at <= self.forgotten_at
            case "turn":
                return (self.owner, self.name) == (session_id, turn_id)
            case "slot" | "words":
                return False


@dataclass(frozen=True)
class Tombstones:
    """All of one user's."""

    app: str = ""
    user_id: str = ""
    each: tuple[Tombstone, ...] = ()
    generation: int = 0
    """How many times the user had something forgotten: what was read at an earlier one is out of date."""

    @classmethod
    def of_rows(cls, app: str, user_id: str, rows: Iterable[dict[str, Any]]) -> Self:
        """Of rows with scope, owner, name, forgotten_at and generation."""
        found = list(rows)
        stones = tuple(
            Tombstone.model_validate({name: row[name] for name in Tombstone.model_fields}) for row in found
        )
        return cls(app, user_id, stones, max((row["generation"] for row in found), default=0))

    def forgets(self, turn: Turn) -> bool:
        """Whether the turn is forgotten."""
        return any(stone.hits(turn) for stone in self.each)

    def refuse(self, *turns: Turn) -> None:
        """Forgotten where any of these turns is."""
        if gone := [turn.turn_id for turn in turns if self.forgets(turn)]:
            raise Forgotten(f"turn {gone[0]} was forgotten at its user's wish")

    def of_turns(self) -> tuple[Tombstone, ...]:
        """Those that forget turns."""
        return tuple(stone for stone in self.each if stone.scope not in ("slot", "words"))

    def kept_statements(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        """Without those of a forgotten slot, and without forgotten words in another."""
        words = {stone.name.partition(":")[0] for stone in self._of("words")}
        return tuple(
            said
            for said in statements
            if not self._holds("/".join(said.slot), said.said_at)
            and words_id(self.app, self.user_id, said.turn_id, said.text).hex not in words
        )

    def kept_lines(self, lines: Sequence[SummaryLine]) -> tuple[SummaryLine, ...]:
        """Without what a forgotten slot says.

        A line that names no slot goes where its turn was a source of it, unless it is a digest: that stands
        for the turn, which is not forgotten.
        """
        turns = {stone.name.partition(":")[2] for stone in self._of("words")}
        words = {stone.name.partition(":")[0] for stone in self._of("words")}
        return tuple(
            line
            for line in lines
            if not self._holds(line.subject, line.at)
            and not (not line.subject and line.kind != "digest" and line.turn_id in turns)
            and words_id(self.app, self.user_id, line.turn_id, line.text).hex not in words
        )

    def _of(self, scope: Reach) -> Iterable[Tombstone]:
        return (stone for stone in self.each if stone.scope == scope)

    def _holds(self, slot: str, at: datetime) -> bool:
        slots = [stone for stone in self._of("slot") if at <= stone.forgotten_at]
        return bool(slots and slot) and slot_id(self.app, self.user_id, slot).hex in {s.name for s in slots}


@dataclass(frozen=True)
class Selection:
    """What to forget: all of a user, or one session, project or entity. At most one of these is named."""

    app: str
    user_id: str
    session_id: str | None = None
    project_id: str | None = None
    entity_id: uuid.UUID | None = None
    before: datetime | None = None
    """Only what is dated at or before this moment; None: all that there is."""

    @property
    def scope(self) -> Literal["user", "session", "project", "entity"]:
        """Which kind it is."""
        if self.entity_id is not None:
            return "entity"
        if self.session_id is not None:
            return "session"
        return "user" if self.project_id is None else "project"

    def session(self, session_id: str) -> SessionKey:
        """One of the user's sessions."""
        return SessionKey(app=self.app, user_id=self.user_id, session_id=session_id)


def slot_id(app: str, user_id: str, slot: str) -> uuid.UUID:
    """Stands for a slot (`scope/owner/subject`) without telling what it is about."""
    return derived_id("slot", app, user_id, slot)


def words_id(app: str, user_id: str, turn_id: str, text: str) -> uuid.UUID:
    """Stands for what a turn said, in whatever case and punctuation."""
    return derived_id("words", app, user_id, turn_id, normalised(text))
