"""Hypothesis strategies for what agents send: any JSON value, and events of ADKs not yet written."""

import base64
from typing import Any

from hypothesis import strategies as st

NASTY = ["\x00", "\ud800", "é", "e\u0301", "支払い", "🧾", "'; DROP TABLE turns; --", "</lamina-memory>"]

texts = st.one_of(st.text(max_size=30), st.sampled_from(NASTY), st.text(st.characters(), max_size=10))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
blobs = st.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode())


def _named(name: str, key: str) -> st.SearchStrategy[dict[str, Any]]:
    body = st.fixed_dictionaries({"id": texts, "name": st.sampled_from(["search", "run"]), key: json_objects})
    return st.fixed_dictionaries({name: body}, optional={"thought_signature": blobs})


parts: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"text": texts}, optional={"thought": st.booleans()}),
    _named("function_call", "args"),
    _named("functionCall", "args"),
    _named("function_response", "response"),
    st.fixed_dictionaries(
        {"inline_data": st.fixed_dictionaries({"mime_type": st.just("image/png"), "data": blobs})}
    ),
    json_objects,
)


def _over(unknown: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    return {**unknown, **known}


events: st.SearchStrategy[dict[str, Any]] = st.builds(
    _over,
    st.dictionaries(st.sampled_from(["from_a_later_adk", "x"]), json_values, max_size=2),
    st.fixed_dictionaries(
        {
            "author": st.sampled_from(["user", "assistant", "planner"]),
            "content": st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "model"]), "parts": st.lists(parts, max_size=3)}
            ),
        },
        optional={
            "id": texts,
            "timestamp": st.floats(0, 2e9),
            "actions": st.fixed_dictionaries({"state_delta": json_objects}),
            "long_running_tool_ids": st.lists(texts, max_size=2),
            "error_code": texts,
        },
    ),
)


def turns(turn_id: str = "t1", **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """JSON turns of one session with between one and four wild events."""
    base = {
        "app": "shop",
        "user_id": "ana",
        "session_id": "s1",
        "turn_id": turn_id,
        "occurred_at": "2026-01-05T10:00:00Z",
        **fields,
    }
    return st.lists(events, min_size=1, max_size=4).map(lambda wild: {**base, "events": wild})
