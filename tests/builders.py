"""Invented turns, statements and chunks, with whatever a test does not care about filled in."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from lamina.event import Speaker
from lamina.model import EpisodeChunk, Kind, Scope, SessionKey, Statement, Turn
from lamina.ports import Vector

BEGAN = datetime(2026, 3, 1, 9, tzinfo=UTC)
APP = "shop"


def a_user() -> str:
    """A user whom no other test knows."""
    return f"user-{uuid.uuid4()}"


def a_session(user: str, session: str = "s1") -> SessionKey:
    return SessionKey(app=APP, user_id=user, session_id=session)


def a_turn(user: str, /, number: int = 1, *, session: str = "s1", **fields: Any) -> Turn:
    """Turn `t<number>`, said `number` minutes after the beginning."""
    return Turn.model_validate(
        {
            "app": APP,
            "user_id": user,
            "session_id": session,
            "turn_id": f"t{number}",
            "occurred_at": BEGAN + timedelta(minutes=number),
            "user": f"question {number}",
            "assistant": f"answer {number}",
            **fields,
        }
    )


def a_statement(
    turn: Turn,
    text: str,
    *,
    subject: str = "ui theme",
    ordinal: int = 0,
    scope: Scope = Scope.GLOBAL,
    **fields: Any,
) -> Statement:
    """A preference, said in this turn."""
    return Statement.model_validate(
        {
            "scope": scope,
            "project_id": turn.project_id if scope is Scope.PROJECT else None,
            "kind": Kind.PREFERENCE,
            "subject": subject,
            "text": text,
            "said_by": Speaker.USER,
            "session_id": turn.session_id,
            "turn_id": turn.turn_id,
            "ordinal": ordinal,
            "said_at": turn.occurred_at,
            "language": "en",
            **fields,
        }
    )


def a_chunk(ordinal: int, text: str, speaker: Speaker = Speaker.USER, language: str = "en") -> EpisodeChunk:
    return EpisodeChunk(ordinal=ordinal, speaker=speaker, text=text, language=language)


def a_vector(direction: int = 0) -> Vector:
    """A unit vector along one axis."""
    return [1.0 if axis == direction else 0.0 for axis in range(768)]
