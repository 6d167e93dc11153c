"""A value of the wrong kind in any field: refused by the field's name, and nothing is written."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.abuse.catalogue import NOT_TEXT
from tests.abuse.stack import Stack

WHO = {"app": "shop", "user_id": "fields", "session_id": "s"}
TURN: dict[str, Any] = {
    **WHO,
    "turn_id": "t",
    "occurred_at": "2026-01-05T10:00:00Z",
    "project_id": "p",
    "previous_session_id": "r",
}
CONTEXT = {
    **WHO,
    "project_id": "p",
    "previous_session_id": "r",
    "query": "q",
    "token_budget": 4_000,
    "max_entities": 20,
    "max_episodes": 8,
    "deadline_ms": 2_000,
}
SEARCH = {
    "app": "shop",
    "user_id": "fields",
    "query": "q",
    "k": 10,
    "scope": "global",
    "project_id": "p",
    "session_id": "s",
    "as_of": "2026-01-05T10:00:00Z",
    "include": ["entities"],
}
FETCH = {"app": "shop", "user_id": "fields", "handle": "lamina:s/t/0/0"}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "turn": ("/v1/turns", {**TURN, "events": [{"author": "user"}]}),
    "short": ("/v1/turns", {**TURN, "user": "u", "assistant": "a"}),
    "context": ("/v1/context", CONTEXT),
    "search": ("/v1/search", SEARCH),
    "fetch": ("/v1/fetch", FETCH),
}
OPTIONAL = {
    "turn": {"turn_id", "occurred_at", "project_id", "previous_session_id"},
    "short": {"turn_id", "occurred_at", "project_id", "previous_session_id", "user", "assistant"},
    "context": {"project_id", "previous_session_id"},
    "search": {"scope", "project_id", "session_id", "as_of"},
    "fetch": set[str](),
}
WRONG = {**NOT_TEXT, "empty": "", "too-long": "x" * 30_000, "number-as-text": "8"}
NUMBERS = {"token_budget", "max_entities", "max_episodes", "deadline_ms", "k"}
TEXTS = {"query", "user", "assistant"}
NAMES = {"app", "user_id", "session_id", "turn_id", "project_id", "previous_session_id"}


def fits(request: str, field: str, kind: str) -> bool:
    """Whether the value is right after all."""
    if kind == "null":
        return field in OPTIONAL[request]
    if kind == "number":
        return field in NUMBERS - {"token_budget", "deadline_ms"}
    if kind == "empty":
        return field in TEXTS and request != "search"
    if kind == "number-as-text":
        return field in TEXTS | NAMES
    return kind == "too-long" and field in {"user", "assistant"}


@pytest.fixture(scope="module", autouse=True)
def nothing_written(stack: Stack) -> Iterator[None]:
    before = stack.state()
    yield
    assert stack.state() == before
    stack.still_serves()


@pytest.mark.parametrize(
    ("request_kind", "field"),
    [(kind, field) for kind, (_, body) in REQUESTS.items() for field in body],
)
def test_a_value_of_the_wrong_kind_is_refused_by_its_fields_name(
    stack: Stack, request_kind: str, field: str
) -> None:
    path, body = REQUESTS[request_kind]
    for kind, value in WRONG.items():
        if fits(request_kind, field, kind):
            continue
        answer = stack.post(path, {**body, field: value})
        assert answer.status_code == 422, (kind, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert any(line.startswith(field) for line in answer.json()["problems"]), (kind, answer.text)


@pytest.mark.parametrize("kind", [kind for kind in NOT_TEXT if kind not in ("object", "null")])
def test_what_is_no_event_is_refused_by_its_place(stack: Stack, kind: str) -> None:
    value = NOT_TEXT[kind]
    for where, event in (
        ("events.0", value),
        ("events.0", {"content": value}),
        ("events.0", {"content": {"parts": value}}),
        ("events.0", {"content": {"parts": [value]}}),
        ("events.0", {"author": value}),
    ):
        answer = stack.post("/v1/turns", {**TURN, "events": [event]})
        assert answer.status_code == 422, (event, answer.text)
        assert answer.json()["problems"][0].startswith(where)


@pytest.mark.parametrize(
    "moment",
    [
        0,
        1767606000,
        1767606000.5,
        True,
        "1767606000",
        "2026-01-05",
        "10:00",
        "2026-01-05T10:00:00",
        "yesterday",
        "1899-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "2026-02-30T10:00:00Z",
        "２０２６-01-05T10:00:00Z",
    ],
)
def test_a_time_is_a_time_with_a_zone_or_refused(stack: Stack, moment: object) -> None:
    for path, body, field in (
        ("/v1/turns", {**TURN, "user": "u"}, "occurred_at"),
        ("/v1/search", SEARCH, "as_of"),
    ):
        answer = stack.post(path, {**body, field: moment})
        assert answer.status_code == 422
        assert answer.json()["problems"][0].startswith(f"{field}:")
