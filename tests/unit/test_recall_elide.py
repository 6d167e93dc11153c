"""Old tool output is cut short; calls and responses stay in pairs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.event import Event
from lamina.handles import Handle
from lamina.model import Turn
from lamina.models.tokens import EstimatedTokens
from lamina.recall.elide import cut_text, elide, without_orphans

TOKENS = EstimatedTokens()
LOG = "\n".join(f"line {n}: request served in {n} ms" for n in range(2_000))


def turn(turn_id: str, *parts: dict[str, Any]) -> Turn:
    events = [{"author": "agent", "content": {"role": "model", "parts": [part]}} for part in parts]
    return Turn.model_validate(
        {
            "app": "shop",
            "user_id": "ana",
            "session_id": "s1",
            "turn_id": turn_id,
            "occurred_at": "2026-01-05T10:00:00Z",
            "events": events,
        }
    )


def call(name: str = "run", **more: Any) -> dict[str, Any]:
    return {"function_call": {"name": name, "args": {}, **more}}


def response(output: Any = "ok", name: str = "run", **more: Any) -> dict[str, Any]:
    return {"function_response": {"name": name, "response": {"result": output}, **more}}


def test_a_long_output_keeps_its_head_its_tail_and_a_handle_to_the_whole() -> None:
    view = elide(turn("t1", call(id="c1"), response(LOG, id="c1")), 300, TOKENS)
    kept = view.events[1]["content"]["parts"][0]["function_response"]
    assert view.elided == ("lamina:s1/t1/1/0",)
    assert Handle.parse(kept["response"]["elided"]) == Handle("s1", "t1", 1, 0)
    assert kept["response"]["output"].startswith("line 0:")
    assert kept["response"]["output"].endswith("served in 1999 ms")
    assert TOKENS.count(kept["response"]["output"]) <= 300
    assert (kept["id"], kept["name"]) == ("c1", "run")


def test_a_short_output_is_left_as_it_is() -> None:
    whole = turn("t1", call(id="c1"), response("ok", id="c1"))
    view = elide(whole, 300, TOKENS)
    assert (list(view.events), view.elided) == ([event.root for event in whole.events], ())


def test_what_people_and_agents_said_is_never_cut() -> None:
    whole = turn("t1", {"text": LOG})
    assert elide(whole, 300, TOKENS).events[0] == whole.events[0].root


def test_both_spellings_and_code_results_and_inline_data_are_cut() -> None:
    view = elide(
        turn(
            "t1",
            {"functionResponse": {"name": "run", "response": {"a": LOG, "b": 1}}},
            {"code_execution_result": {"outcome": "OK", "output": LOG}},
            {"inline_data": {"mime_type": "image/png", "data": "A" * 5_000}},
        ),
        300,
        TOKENS,
    )
    assert len(view.elided) == 3
    assert "data" not in str(view.events[2]["content"]["parts"][0].keys())


def test_the_turn_itself_is_not_changed() -> None:
    whole = turn("t1", call(), response(LOG))
    before = whole.encode()
    elide(whole, 300, TOKENS)
    assert whole.encode() == before


def test_a_response_whose_call_is_out_of_sight_is_left_out_and_named() -> None:
    views = [elide(turn("t2", {"text": "done"}, response(id="c1"), response(id="c2")), 300, TOKENS)]
    [view] = without_orphans(views, "s1")
    assert [list(Event.model_validate(e).texts()) for e in view.events] == [["done"]]
    assert view.elided == ("lamina:s1/t2/1/0", "lamina:s1/t2/2/0")


def test_a_response_in_a_later_turn_than_its_call_is_kept() -> None:
    views = [elide(t, 300, TOKENS) for t in (turn("t1", call(id="c1")), turn("t2", response(id="c1")))]
    assert without_orphans(views, "s1") == views


def test_a_pair_without_ids_goes_by_its_name() -> None:
    views = [elide(turn("t1", call("a"), response(name="a"), response(name="b")), 300, TOKENS)]
    assert len(without_orphans(views, "s1")[0].events) == 2


@given(st.text(max_size=400), st.integers(10, 80))
def test_a_cut_text_keeps_to_its_limit(text: str, limit: int) -> None:
    note = " …[cut]… "
    short = cut_text(text, limit, TOKENS, note)
    assert TOKENS.count(short) <= max(limit, TOKENS.count(note))
    assert short == text or note in short
