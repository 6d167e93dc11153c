"""Turns from files: what is filled in, and what a coding agent's log becomes."""

import gzip
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.envelope import MAX_MESSAGE_BYTES, encode
from lamina.events import TurnPublished, TurnRecorded
from lamina.model import Turn
from lamina_services.cli.coding_session import events_of
from lamina_services.cli.turn_lines import (
    Bad,
    Defaults,
    Good,
    coding_session_turn,
    plain_turn,
    read_lines,
)

ANA = Defaults(app="demo", user_id="ana", project_id="shop")
NOON = "2026-02-01T12:00:00Z"


def _turns(path: Path, defaults: Defaults = ANA) -> list[Turn]:
    lines = list(read_lines(path, plain_turn, defaults))
    assert not [line for line in lines if isinstance(line, Bad)]
    return [line.turn for line in lines if isinstance(line, Good)]


def test_what_a_line_leaves_out_is_filled_in_and_what_it_says_stays(tmp_path: Path) -> None:
    file = tmp_path / "turns.jsonl"
    second_line = {"session_id": "s", "user": "two", "user_id": "bo", "turn_id": "t"}
    file.write_text(f'{{"session_id": "s", "user": "one"}}\n{json.dumps(second_line)}', "utf-8")
    first, second = _turns(file)
    assert (first.app, first.user_id, first.project_id) == ("demo", "ana", "shop")
    assert (second.user_id, second.turn_id) == ("bo", "t")
    assert first.occurred_at < second.occurred_at


def test_the_same_file_gives_the_same_turn_ids_and_equal_lines_differ(tmp_path: Path) -> None:
    file = tmp_path / "turns.jsonl"
    file.write_text('{"session_id": "s", "user": "yes"}\n' * 3, "utf-8")
    once, again = [[turn.turn_id for turn in _turns(file)] for _ in range(2)]
    assert once == again
    assert len(set(once)) == 3


def test_a_gzipped_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    file = tmp_path / "turns.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"session_id": "s", "user": "packed"}\n'))
    assert [turn.events[0].root["content"]["parts"][0]["text"] for turn in _turns(file)] == ["packed"]


def test_a_turn_of_the_largest_size_is_good_and_can_be_recorded_and_one_byte_more_is_bad(
    tmp_path: Path,
) -> None:
    def line(length: int) -> str:
        events = [{"author": "user", "content": {"parts": [{"text": "x" * length}]}}]
        return json.dumps({"session_id": "s", "turn_id": "t", "events": events, "occurred_at": NOON})

    file = tmp_path / "turns.jsonl"
    file.write_text(line(1), "utf-8")
    message = encode(TurnPublished(turn=_turns(file)[0]))
    attributes = sum(len(name) + len(value) for name, value in message.attributes.items())
    room = MAX_MESSAGE_BYTES - len(message.data) - attributes
    file.write_text(f"{line(1 + room)}\n{line(2 + room)}", "utf-8")
    fits, too_large = read_lines(file, plain_turn, ANA)
    assert isinstance(fits, Good)
    assert isinstance(too_large, Bad)
    assert "Pub/Sub carries at most" in too_large.problem
    assert encode(TurnRecorded(turn=fits.turn)).data == encode(TurnPublished(turn=fits.turn)).data


def _tool_use(asked: str, answered: str) -> str:
    summary = "<summary>Tool use: **Read**</summary>"
    return (
        f'<tool-use data-tool-type="read" data-tool-name="Read"><details>\n{summary}\n'
        f"{asked}\n\n```text\n{answered}\n```\n</details></tool-use>"
    )


def test_a_log_entry_becomes_the_events_it_stands_for() -> None:
    entries = [
        {"role": "user", "timestamp": "2026-02-01 10:00:00Z", "content": "Read the file."},
        {"role": "thinking", "timestamp": "2026-02-01 10:00:01Z", "content": "Which one?"},
        {"role": "tool", "tool": "Read", "content": _tool_use("`./a.py`", "x = 1\ny = 2")},
        {"role": "assistant", "timestamp": "2026-02-01T10:00:02+00:00", "content": "It sets x and y."},
    ]
    user, thought, call, response, answer = events_of(entries)
    assert user == {
        "author": "user",
        "content": {"role": "user", "parts": [{"text": "Read the file."}]},
        "timestamp": 1769940000.0,
    }
    assert thought["content"]["parts"][0]["thought"] is True
    assert call["content"]["parts"][0]["function_call"]["args"] == {"input": "`./a.py`"}
    answered = response["content"]["parts"][0]["function_response"]
    assert answered["response"] == {"output": "x = 1\ny = 2\n"}
    assert answered["id"] == call["content"]["parts"][0]["function_call"]["id"]
    assert answer["content"]["role"] == "model"


@given(text=st.text())
def test_a_tool_output_in_no_known_form_is_kept_whole(text: str) -> None:
    content = f"plain {text}"
    _, response = events_of([{"role": "tool", "tool": "Bash", "content": content}])
    assert response["content"]["parts"][0]["function_response"]["response"] == {"output": content}


def test_a_log_line_becomes_a_turn_and_a_bad_one_says_where(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"session_id": "s", "turn": 0, "events": [{"role": "user", "content": "hi"}]},
        {"session_id": "s", "turn": 1, "events": [{"role": "user", "content": "x"}, {"role": "robot"}]},
        {"session_id": "s", "events": []},
        {"session_id": "s", "turn": 2, "events": [{"role": "user", "content": "x", "timestamp": "soon"}]},
    ]
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    good, *bad = read_lines(file, coding_session_turn, ANA)
    assert isinstance(good, Good)
    assert good.turn.project_id == "shop"
    problems = [line.problem for line in bad if isinstance(line, Bad)]
    assert problems == [
        "events.1: role: 'robot' is not one of user, assistant, thinking, tool",
        "turn: is missing",
        "events.0: timestamp: 'soon' is no ISO 8601 time",
    ]
