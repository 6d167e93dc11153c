"""Which of a model's statements may become memory."""

from collections.abc import Iterable

from lamina.event import Speaker
from lamina.model import Kind, Scope, Statement, Turn

_ONLY_THE_USER = (Kind.PREFERENCE, Kind.RULE, Kind.VETO)


def admissible(statements: Iterable[Statement], turn: Turn) -> tuple[Statement, ...]:
    """The statements that the turn can stand for, numbered in order.

    Nothing a tool returned is ever learned, and only the user sets preferences, rules and vetoes. A
    statement always belongs to its own turn and session, whatever a model wrote into it.
    """
    said = [
        statement
        for statement in statements
        if statement.said_by is not Speaker.TOOL
        and (statement.said_by is Speaker.USER or statement.kind not in _ONLY_THE_USER)
    ]
    return tuple(
        statement.model_copy(
            update={"session_id": turn.session_id, "turn_id": turn.turn_id, "ordinal": ordinal}
        )
        for ordinal, statement in enumerate(_distinct(said))
    )


def _distinct(statements: Iterable[Statement]) -> Iterable[Statement]:
    """Leave out what a turn says twice in the same words about the same thing."""
    seen: set[tuple[Scope, str | None, Kind, str, str]] = set()
    for statement in statements:
        key = (statement.scope, statement.project_id, statement.kind, statement.subject, statement.text)
        if key not in seen:
            seen.add(key)
            yield statement
