"""How a turn is cut into searchable chunks. Pure: the same turn always gives the same chunks."""

import json
from collections.abc import Iterator
from typing import Any, cast

from lamina.event import Event, Speaker
from lamina.fence import strip_fenced
from lamina.handles import Handle
from lamina.language import detect
from lamina.model import EpisodeChunk, Turn

CHUNKER = "chunks/1"
"""Stored with each chunk. Count up with every change to what `chunks_of` gives."""
MESSAGE_CHARS = 4_000
"""A message is one chunk up to this length: a reader wants it whole."""
TOOL_CHARS = 1_500
"""Tool output is cut finer: a hit should point at the lines that matter."""
OVERLAP_CHARS = 150
"""Neighbouring windows share this much, so that nothing is lost at the cut."""


def chunks_of(turn: Turn) -> tuple[EpisodeChunk, ...]:
    """Every piece of text in the turn, in order, each led by its date and speaker.

    Retrieval needs that lead: it more than doubled recall of the vectors when it was measured.
    """
    pieces = (
        (event_index, part_index, speaker, name, text)
        for event_index, event in enumerate(turn.events)
        for part_index, speaker, name, text in _texts(event)
    )
    chunks: list[EpisodeChunk] = []
    for event_index, part_index, speaker, name, text in pieces:
        handle = str(Handle(turn.session_id, turn.turn_id, event_index, part_index))
        language = detect(text) if speaker is not Speaker.TOOL else "und"
        lead = f"[{turn.occurred_at:%Y-%m-%d}] {name}: "
        first = len(chunks)
        chunks.extend(
            EpisodeChunk(
                ordinal=first + offset,
                speaker=speaker,
                text=lead + window,
                language=language,
                handle=handle,
            )
            for offset, window in enumerate(windows(text, _width(speaker)))
        )
    return tuple(chunks)


def windows(text: str, width: int) -> Iterator[str]:
    """The text in overlapping windows of at most `width` characters, cut at white space if possible."""
    start = 0
    while len(text) - start > width:
        cut = _cut(text, start, width)
        yield text[start:cut]
        start = max(cut - OVERLAP_CHARS, start + 1)
    if text[start:].strip():
        yield text[start:]


def _cut(text: str, start: int, width: int) -> int:
    """Where to end a window: after a line, else after a word, in its last third; else hard."""
    earliest = start + width * 2 // 3
    for mark in ("\n", " "):
        found = text.rfind(mark, earliest, start + width)
        if found > 0:
            return found + 1
    return start + width


def _width(speaker: Speaker) -> int:
    return TOOL_CHARS if speaker is Speaker.TOOL else MESSAGE_CHARS


def _texts(event: Event) -> Iterator[tuple[int, Speaker, str, str]]:
    """(part index, speaker, the speaker's name, text) of each part that has something to find."""
    speaker = event.speaker
    name = speaker.value if speaker is Speaker.TOOL else event.author or speaker.value
    calls = dict(event.function_calls())
    responses = dict(event.function_responses())
    for index, part in enumerate(event.parts):
        if index in responses:
            response = responses[index]
            yield from _one(index, Speaker.TOOL, _tool_name(response), plain(response.get("response")))
        elif index in calls:
            call = calls[index]
            yield from _one(index, Speaker.AGENT, name, f"calls {_tool_name(call)} {_json(call.get('args'))}")
        elif isinstance(part.get("text"), str) and not part.get("thought"):
            yield from _one(index, speaker, name, strip_fenced(part["text"]))


def _one(index: int, speaker: Speaker, name: str, text: str) -> Iterator[tuple[int, Speaker, str, str]]:
    if text.strip():
        yield index, speaker, name, text


def _tool_name(call: dict[str, Any]) -> str:
    name = call.get("name")
    return name if isinstance(name, str) and name else "tool"


def plain(value: Any) -> str:
    """A JSON value as text to search in: strings as they are, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        inner = list(cast(dict[str, Any], value).values())
        if len(inner) == 1 and isinstance(inner[0], str):
            return inner[0]
    return "" if value is None else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
