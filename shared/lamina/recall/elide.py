"""Cuts old tool output in recent turns: a head, a tail, and a handle that fetches the whole.

Calls and their responses stay in pairs: only a response's text gets shorter, and a response whose call
is no longer in sight is left out, since models refuse one without the other.
"""

import json
from collections.abc import Sequence
from typing import Any, cast

from lamina.api import TurnView
from lamina.event import Event
from lamina.handles import Handle
from lamina.model import Turn
from lamina.ports import TokenCounter

_OUTPUTS = {
    "function_response": "response",
    "functionResponse": "response",
    "code_execution_result": "output",
    "codeExecutionResult": "output",
}
"""Parts that hold what a tool gave, and the field it is in."""
_SAMPLE = 8_000
"""Characters at either end by which a longer text is judged: reading megabytes to cut them is no use."""
_INLINE = ("inline_data", "inlineData")


def elide(turn: Turn, limit: int, tokens: TokenCounter) -> TurnView:
    """The turn with every tool output and inline datum of more than `limit` tokens cut to about that."""
    handles: list[str] = []
    events: list[dict[str, Any]] = []
    for index, event in enumerate(turn.events):
        cut = {
            position: shorter
            for position, part in enumerate(event.parts)
            if (shorter := _shorter(part, str(_handle(turn, index, position)), limit, tokens)) is not None
        }
        handles.extend(str(_handle(turn, index, position)) for position in cut)
        events.append(_with_parts(event, [cut.get(i, part) for i, part in enumerate(event.parts)], bool(cut)))
    return TurnView(
        turn_id=turn.turn_id, occurred_at=turn.occurred_at, events=tuple(events), elided=tuple(handles)
    )


def without_orphans(views: Sequence[TurnView], session_id: str) -> list[TurnView]:
    """The views without the function responses whose calls came before the first of them."""
    called: set[str] = set()
    whole: list[TurnView] = []
    for view in views:
        events: list[dict[str, Any]] = []
        dropped: list[str] = []
        for index, value in enumerate(view.events):
            event = Event.model_construct(root=value)
            called.update(key for _, call in event.function_calls() for key in _keys(call))
            orphans = {i for i, response in event.function_responses() if not called & set(_keys(response))}
            dropped.extend(str(Handle(session_id, view.turn_id, index, i)) for i in sorted(orphans))
            parts = [part for i, part in enumerate(event.parts) if i not in orphans]
            if parts or not orphans:
                events.append(_with_parts(event, parts, bool(orphans)))
        update = {"events": tuple(events), "elided": tuple(dict.fromkeys((*view.elided, *dropped)))}
        whole.append(view.model_copy(update=update) if dropped else view)
    return whole


def cut_text(text: str, limit: int, tokens: TokenCounter, note: str) -> str:
    """The text's head and tail around `note`, about `limit` tokens in all; the text itself where it fits."""
    total = 0 if len(text) <= limit // 3 else size_of(text, tokens)  # no character is over three tokens
    if total <= limit:
        return text
    room = max(0, limit - tokens.count(note))
    length = len(text) * room // total
    while length > 0:
        head = length * 2 // 3
        shorter = f"{text[:head]}{note}{text[len(text) - (length - head) :]}"
        if tokens.count(shorter) <= limit:
            return shorter
        length = length * 3 // 4
    return note


def size_of(text: str, tokens: TokenCounter) -> int:
    """The text's tokens; of a very long one, by its beginning and its end."""
    if len(text) <= 2 * _SAMPLE:
        return tokens.count(text)
    sample = text[:_SAMPLE] + text[-_SAMPLE:]
    return tokens.count(sample) * len(text) // len(sample)


def _shorter(part: dict[str, Any], handle: str, limit: int, tokens: TokenCounter) -> dict[str, Any] | None:
    """The part cut, or None where it is short enough or none of a tool's."""
    for name, field in _OUTPUTS.items():
        if isinstance(value := part.get(name), dict):
            whole = cast(dict[str, Any], value)
            text = _output_text(whole.get(field))
            short = cut_text(text, limit, tokens, _note(handle))
            if short == text:
                return None
            output = {"output": short, "elided": handle} if field == "response" else short
            return {**part, name: {**whole, field: output}}
    for name in _INLINE:
        if isinstance(value := part.get(name), dict):
            data = cast(dict[str, Any], value)
            # Base64 is about a token for each character or two: counting it is not worth the time.
            if len(_output_text(data.get("data"))) > limit:
                return {"text": f"[{data.get('mime_type', data.get('mimeType', 'data'))}:{_note(handle)}]"}
    return None


def _output_text(value: object) -> str:
    """A tool's output as text: the string itself, or the only string in it, or its JSON."""
    if isinstance(value, dict) and len(cast(dict[str, Any], value)) == 1:
        (value,) = cast(dict[str, Any], value).values()
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _note(handle: str) -> str:
    return f" …[cut; whole: {handle}]… "


def _handle(turn: Turn, event: int, part: int) -> Handle:
    return Handle(turn.session_id, turn.turn_id, event, part)


def _keys(call: dict[str, Any]) -> list[str]:
    """What pairs a call with its response: the id where there is one, else the name."""
    identity = call.get("id")
    return [f"id:{identity}"] if identity else [f"name:{call.get('name')}"]


def _with_parts(event: Event, parts: list[dict[str, Any]], changed: bool) -> dict[str, Any]:
    if not changed:
        return event.root
    content = cast(dict[str, Any], event.root.get("content"))
    return {**event.root, "content": {**content, "parts": parts}}
