"""How a turn is cut into searchable chunks."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.event import Speaker
from lamina.fence import fence
from lamina.handles import Handle
from lamina.model import Turn
from lamina_services.episodic_embedder.decision import OVERLAP_CHARS, TOOL_CHARS, chunks_of, windows
from tests.strategies import turns


def turn_of(*events: dict[str, Any]) -> Turn:
    return Turn.model_validate(
        {
            "app": "shop",
            "user_id": "ana",
            "session_id": "s 1",
            "turn_id": "t/1",
            "occurred_at": "2026-01-05T10:00:00Z",
            "events": list(events),
        }
    )


def said(author: str, *parts: dict[str, Any]) -> dict[str, Any]:
    role = "user" if author == "user" else "model"
    return {"author": author, "content": {"role": role, "parts": list(parts)}}


def test_a_chunk_begins_with_the_date_and_the_speaker() -> None:
    chunks = chunks_of(turn_of(said("user", {"text": "Use tabs."}), said("coder", {"text": "Done."})))
    assert [chunk.text for chunk in chunks] == ["[2026-01-05] user: Use tabs.", "[2026-01-05] coder: Done."]
    assert [chunk.speaker for chunk in chunks] == [Speaker.USER, Speaker.AGENT]


def test_a_tool_speaks_for_itself_whatever_role_carries_its_response() -> None:
    call = {"function_call": {"name": "grep", "args": {"pattern": "timeout"}}}
    response = {"function_response": {"name": "grep", "response": {"output": "timeout = 30"}}}
    chunks = chunks_of(turn_of(said("coder", call), said("user", response)))
    assert chunks[0].text == '[2026-01-05] coder: calls grep {"pattern": "timeout"}'
    assert chunks[1].text == "[2026-01-05] grep: timeout = 30"
    assert [chunk.speaker for chunk in chunks] == [Speaker.AGENT, Speaker.TOOL]


def test_long_tool_output_is_cut_and_each_piece_has_the_handle_of_the_whole() -> None:
    log = "\n".join(f"line {number} of the log" for number in range(500))
    response = {"function_response": {"name": "run", "response": {"output": log}}}
    chunks = chunks_of(turn_of(said("coder", response)))
    assert len(chunks) > 5
    assert all(len(chunk.text) <= TOOL_CHARS + 40 for chunk in chunks)
    assert {Handle.parse(chunk.handle) for chunk in chunks} == {Handle("s 1", "t/1", 0, 0)}
    assert all(any(line in chunk.text for chunk in chunks) for line in log.splitlines())


def test_thoughts_and_injected_memory_are_not_episodes() -> None:
    echo = f"As I remember: {fence('- never use tabs')} So, spaces."
    chunks = chunks_of(turn_of(said("coder", {"text": "hmm", "thought": True}, {"text": echo})))
    assert [chunk.text for chunk in chunks] == ["[2026-01-05] coder: As I remember:  So, spaces."]


@given(turns())
def test_any_turn_gives_chunks_numbered_in_order_and_always_the_same(value: dict[str, Any]) -> None:
    turn = Turn.model_validate(value)
    chunks = chunks_of(turn)
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    assert chunks == chunks_of(turn)
    assert all(Handle.parse(chunk.handle).turn_id == turn.turn_id for chunk in chunks)


@given(st.text(min_size=1, max_size=3000), st.integers(OVERLAP_CHARS + 1, 900))
def test_windows_cover_every_character_and_none_is_too_wide(text: str, width: int) -> None:
    pieces = list(windows(text, width))
    assert all(len(piece) <= width for piece in pieces)
    position = 0
    for piece in pieces:
        start = text.find(piece, max(0, position - OVERLAP_CHARS - 1))
        assert start <= position
        position = max(position, start + len(piece))
    assert not text[position:].strip()
