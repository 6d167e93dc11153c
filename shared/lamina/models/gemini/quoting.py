"""Puts transcripts and memory into prompts as data: a text is one JSON string, in a block it cannot close."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lamina.event import Event, Speaker
from lamina.fence import strip_fenced
from lamina.model import Turn
from lamina.text import storable

SPOKEN_LIMIT = 16_000
"""Characters of one message that a prompt quotes."""
TOOL_LIMIT = 1_500
"""Characters of one tool call or its output: enough to know what happened."""


@dataclass(frozen=True)
class Said:
    """One event as a model reads it."""

    speaker: Speaker
    at: datetime
    text: str = ""
    """What was said, without echoed memory. Empty for a tool's event."""
    tools: str = ""
    """Calls made, or what a tool returned."""


def said_in(turn: Turn) -> list[Said]:
    """One entry for each event of the turn, in order."""
    return [_said(event, turn) for event in turn.events]


def quote(value: object, limit: int = SPOKEN_LIMIT) -> str:
    """A text as one line of JSON, cut in the middle at `limit`, in which no tag can begin."""
    text = storable(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
    if len(text) > limit:
        head, tail = limit * 3 // 4, limit // 4
        text = f"{text[:head]} [… {len(text) - head - tail} characters left out …] {text[-tail:]}"
    return json.dumps(text, ensure_ascii=False).replace("<", "\\u003c")


def block(tag: str, lines: Iterable[str]) -> str:
    """The lines inside a tag, or a self-closed tag where there are none."""
    inside = "\n".join(lines)
    return f"<{tag}>\n{inside}\n</{tag}>" if inside else f"<{tag}/>"


def line_of(said: Said) -> str:
    """An event as one line: who, and what."""
    if said.speaker is Speaker.TOOL:
        return f"tool output: {quote(said.tools, TOOL_LIMIT)}"
    calls = f" tool calls: {quote(said.tools, TOOL_LIMIT)}" if said.tools else ""
    return f"{said.speaker.value}: {quote(said.text)}{calls}"


def occurs_in(evidence: str, text: str) -> bool:
    """Whether the quotation stands in the text; case, spacing and quotation marks aside.

    A model may copy the escapes that `quote` put in.
    """
    unescaped = evidence.replace("\\n", " ").replace('\\"', '"').replace("\\u003c", "<")
    wanted = _plain(unescaped).strip(" \"'“”‘’«».…")
    return len(wanted) >= 2 and wanted in _plain(text)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text)).casefold().strip()


def _said(event: Event, turn: Turn) -> Said:
    at = _at(event, turn)
    if event.speaker is Speaker.TOOL:
        responses = [_compact(response) for _, response in event.function_responses()]
        return Said(Speaker.TOOL, at, tools="\n".join([*responses, *event.texts()]))
    text = strip_fenced("\n".join(event.texts())).strip()
    return Said(event.speaker, at, text, "\n".join(_compact(call) for _, call in event.function_calls()))


def _compact(tool: Mapping[str, Any]) -> str:
    body = tool.get("response", tool.get("args"))
    return f"{tool.get('name', '')} {json.dumps(body, ensure_ascii=False)}"


def _at(event: Event, turn: Turn) -> datetime:
    """The event's own timestamp (seconds since 1970) where it has a plausible one, else the turn's."""
    stamp = event.root.get("timestamp")
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or not 0 < stamp < 1e11:
        return turn.occurred_at
    return datetime.fromtimestamp(stamp, UTC)
