"""Who is behind an event, and what an event or a turn may hold."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from lamina.errors import InvalidEvent
from lamina.event import Event, Speaker
from lamina.model import Turn
from lamina.models.offline.extraction import extract_turn
from lamina.turns import complete_turn

BASE = {"app": "shop", "user_id": "ana", "session_id": "s1", "turn_id": "t1"}
VETO = {"text": "Never use caching."}


def event(author: str | None, role: str | None, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"author": author or "", "content": {"role": role, "parts": list(parts)}}


TOOLS = [
    event("user", "tool", VETO),
    event("user", "function", VETO),
    event("tool", "tool", VETO),
    event("function", None, VETO),
    event("user", "user", {"function_response": {"name": "x"}}, VETO),
    event("user", "user", {"functionResponse": {"name": "x"}}, VETO),
    event("user", "user", {"function_response": None, "functionResponse": {"name": "x"}}, VETO),
    event("user", "user", {"function_response": "a string", **VETO}),
    event(None, "user", {"function_response": {"name": "x"}, **VETO}),
]


@pytest.mark.parametrize("value", TOOLS)
def test_a_tool_is_a_tool_in_whatever_shape_its_answer_comes(value: dict[str, Any]) -> None:
    assert Event.model_validate(value).speaker is Speaker.TOOL
    assert (
        extract_turn(Turn.model_validate({**BASE, "occurred_at": "2026-01-01T00:00Z", "events": [value]}))
        == ()
    )


@pytest.mark.parametrize(
    ("value", "speaker"),
    [
        (event("user", "user", VETO), Speaker.USER),
        (event("user", None, VETO), Speaker.USER),
        (event(None, "user", VETO), Speaker.USER),
        (event("user", "model", VETO), Speaker.AGENT),
        (event("coder", "model", VETO), Speaker.AGENT),
        (event("coder", "user", VETO), Speaker.AGENT),
    ],
)
def test_only_a_person_is_the_user(value: dict[str, Any], speaker: Speaker) -> None:
    assert Event.model_validate(value).speaker is speaker


@pytest.mark.parametrize("where", ["event", "turn"])
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "JSON cannot carry"),
        (math.inf, "JSON cannot carry"),
        (b"bytes", "bytes, which is not JSON"),
        ({1, 2}, "set, which is not JSON"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime, which is not JSON"),
        ({1: 2}, "names are not all strings"),
        (eval("[" * 80 + "]" * 80), None),  # noqa: S307 - a literal, shorter than it would be written out
    ],
)
def test_what_json_cannot_carry_is_refused_with_a_reason(where: str, value: Any, why: str | None) -> None:
    events = [{**event("user", "user", VETO), **({"extra": value} if where == "event" else {})}]
    turn = {**BASE, "events": events, **({"extra": value} if where == "turn" else {})}
    if why is None:
        assert complete_turn(turn).to_json()["events"] == events
        return
    with pytest.raises(InvalidEvent, match=why):
        complete_turn(turn)


@pytest.mark.parametrize("where", ["event", "turn"])
def test_nesting_without_end_is_refused(where: str) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    events = [{**event("user", "user", VETO), **({"extra": deep} if where == "event" else {})}]
    with pytest.raises(InvalidEvent, match="nested deeper"):
        complete_turn({**BASE, "events": events, **({"extra": deep} if where == "turn" else {})})


@pytest.mark.parametrize("value", [None, "\x00", "\ud800", [{"\ud800": 1}], {"a": {"b": [1e300]}}, 10**400])
def test_an_unknown_field_of_a_turn_comes_back_as_it_was(value: Any) -> None:
    turn = complete_turn({**BASE, "user": "hello", "of_a_later_version": value})
    assert turn.to_json()["of_a_later_version"] == value
    assert Turn.model_validate(turn.to_json()) == turn
    turn.encode()


@pytest.mark.parametrize("name", ["user", "assistant"])
def test_the_short_form_never_drops_what_it_cannot_hold(name: str) -> None:
    with pytest.raises(InvalidEvent, match=f"{name}: must be a string"):
        complete_turn({**BASE, "user": "hi", "assistant": "ho", name: {"text": "important"}})


@pytest.mark.parametrize("name", ["app", "user_id", "session_id", "turn_id", "project_id"])
def test_a_name_is_short_enough_for_every_index(name: str) -> None:
    complete_turn({**BASE, "user": "hi", name: "支" * 85})
    with pytest.raises(InvalidEvent, match="at most 256"):
        complete_turn({**BASE, "user": "hi", name: "支" * 86})
