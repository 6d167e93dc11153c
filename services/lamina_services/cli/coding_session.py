"""From a coding agent's log to ADK events.

The log has one entry a message: role (user, assistant, thinking, tool), timestamp, content. A tool's entry
holds call and output in one text of the form `<tool-use …><details><summary>…</summary> call ```output```
</details></tool-use>`; it becomes the function call and the function response that it stands for.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from lamina.errors import InvalidEvent

AGENT = "coding-agent"

_TOOL_USE = re.compile(
    r"\A\s*<tool-use\b[^>]*>\s*<details>\s*(?:<summary>.*?</summary>)?(?P<body>.*?)</details>\s*</tool-use>\s*\Z",
    re.DOTALL,
)
_FENCED = re.compile(r"^(?P<fence>`{3,})[^\n`]*\n(?P<output>.*?)^(?P=fence)\s*$", re.DOTALL | re.MULTILINE)
_ROLES = ("user", "assistant", "thinking", "tool")


def events_of(entries: Any) -> list[dict[str, Any]]:
    """The events of a turn's log entries, in order. InvalidEvent names each entry that is none."""
    if not isinstance(entries, list) or not entries:
        raise InvalidEvent(["events: must be a list that is not empty"])
    events: list[dict[str, Any]] = []
    problems: list[str] = []
    for position, entry in enumerate(cast(list[Any], entries)):
        try:
            events += _events_of_entry(position, entry)
        except InvalidEvent as error:
            problems += [f"events.{position}: {problem}" for problem in error.problems]
    if problems:
        raise InvalidEvent(problems)
    return events


def _events_of_entry(position: int, entry: Any) -> list[dict[str, Any]]:
    if not isinstance(entry, Mapping):
        raise InvalidEvent(["must be an object"])
    fields = cast(Mapping[str, Any], entry)
    role, content = fields.get("role"), fields.get("content")
    if role not in _ROLES:
        raise InvalidEvent([f"role: {role!r} is not one of {', '.join(_ROLES)}"])
    if not isinstance(content, str):
        raise InvalidEvent(["content: must be a text"])
    at = _seconds(fields.get("timestamp"))
    if role == "user":
        return [_event("user", "user", {"text": content}, at)]
    if role == "assistant":
        return [_event(AGENT, "model", {"text": content}, at)]
    if role == "thinking":
        return [_event(AGENT, "model", {"text": content, "thought": True}, at)]
    return _tool(f"call-{position}", str(fields.get("tool") or "tool"), content, at)


def _tool(call_id: str, name: str, content: str, at: float | None) -> list[dict[str, Any]]:
    asked, answered = _split(content)
    call = {"id": call_id, "name": name, "args": {"input": asked} if asked else {}}
    response = {"id": call_id, "name": name, "response": {"output": answered}}
    return [
        _event(AGENT, "model", {"function_call": call}, at),
        _event(AGENT, "user", {"function_response": response}, at),
    ]


def _split(content: str) -> tuple[str, str]:
    """What was asked of the tool, and what it answered; all of it as the answer where the form is another."""
    use = _TOOL_USE.match(content)
    if use is None:
        return "", content
    body = use["body"].strip("\n")
    output = _FENCED.search(body)
    if output is None:
        return "", body
    asked = (body[: output.start()] + body[output.end() :]).strip()
    return asked, output["output"]


def _event(author: str, role: str, part: dict[str, Any], at: float | None) -> dict[str, Any]:
    event: dict[str, Any] = {"author": author, "content": {"role": role, "parts": [part]}}
    return event if at is None else {**event, "timestamp": at}


def _seconds(timestamp: Any) -> float | None:
    """Seconds since 1970. A time without a zone is UTC."""
    if timestamp is None:
        return None
    try:
        moment = datetime.fromisoformat(str(timestamp))
    except ValueError:
        raise InvalidEvent([f"timestamp: {timestamp!r} is no ISO 8601 time"]) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
