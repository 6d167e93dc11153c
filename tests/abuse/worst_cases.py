"""Reads the worst texts with one reader: `python -m tests.abuse.worst_cases READER`."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

from lamina import strict_json
from lamina.api import ContextRequest
from lamina.errors import InvalidEvent
from lamina.event import Speaker
from lamina.fence import fence, strip_fenced
from lamina.language import detect
from lamina.model import Turn
from lamina.models.offline.digest import gist
from lamina.models.offline.extraction import extract_turn, find
from lamina.models.offline.scopes import named_project
from lamina.models.offline.sentences import sentences
from lamina.models.offline.summary import lines_of
from lamina.models.tokens import EstimatedTokens
from lamina.recall.elide import cut_text
from lamina.recall.render import quoted
from lamina.recall.timewords import time_hint
from lamina.recall.words import searchable
from lamina.turns import MAX_EVENTS
from lamina_services.context.decision import Material, assemble
from lamina_services.episodic_embedder.decision import chunks_of, windows

SIZE = 100_000
AT = datetime(2026, 1, 5, tzinfo=UTC)
TOKENS = EstimatedTokens()
# fmt: off
UNITS = [
    "a", "é", "支", "ァ", "한", "ё", "1", "\n", " ", "\u0301", "\ufdfa", "👩‍👩‍👧‍👦", "\u202e", "a-",
    "a.", "a@", "a/", "a://", "-", "_", "'", '"', "“", "(", "[", "{", "<", "<a-b>", "<a-b", "<output>",
    "`", "```", "```\n", "~~~", "- x\n", "<lamina-memory>", "</lamina-memory>", "1. ", "1.1.", "> ",
    "00:", "2026-", "$ ", "c++ ", "# ", ". A", "(e.g. ", "p. ej. ", "! ", "; ", ", ", "never, ",
    "and I ", "I prefer tea. ", "I prefer ", "Foo Bar ", "use Python, ", "tool timeout 30 seconds ",
    "5 burst ", "project A ", "the A B C ", "2 days ago ", "told x ", "last week ", "January 2026 ",
    "of may ", "one two ", "e\u0301\u0489", "x" * 81 + " ", "\ud800", "\x00",
]
# fmt: on


def read(text: str, reader: Callable[[str], Any]) -> None:
    found = reader(text)
    if isinstance(found, Iterator):
        list(cast("Iterator[Any]", found))  # what is lazy is read to its end


def turn_of(*events: Any) -> Turn:
    names = {"app": "a", "user_id": "u", "session_id": "s", "turn_id": str(uuid4()), "occurred_at": AT}
    return Turn.model_validate({**names, "events": list(events)})


def said(*texts: str) -> dict[str, Any]:
    parts = [{"text": text} for text in texts]
    return {"author": "user", "content": {"role": "user", "parts": parts}}


def returned(text: str) -> dict[str, Any]:
    part = {"function_response": {"name": "x", "response": {"r": text}}}
    return {"author": "a", "content": {"parts": [part]}}


def big_turns() -> Iterable[Turn]:
    """As large as a turn may be, in each direction."""
    few = "I prefer tea. What now? "
    yield turn_of(said(*(f"{few}{number}" for number in range(MAX_EVENTS))))
    yield turn_of(*(said(f"hm {number}") for number in range(MAX_EVENTS)))
    yield turn_of(*(returned("v " * 300) for _ in range(MAX_EVENTS)))
    yield turn_of(said(few * 300_000))
    yield turn_of(said("a" * 8_000_000), returned("v w " * 200_000))
    yield turn_of(*(said(f"{'a' * 4_000}{number}") for number in range(2_000)))


def context_of(turn: Turn) -> None:
    asked = ContextRequest(app="a", user_id="u", session_id="s", token_budget=4_000)
    assemble(asked, Material(turns=(turn,)), tokens=TOKENS, tool_output_tokens=300)


def json_texts() -> Iterable[bytes]:
    names = b",".join(b'"k%d":1' % number for number in range(SIZE))
    yield b"{" + names + b',"k99999":2}'
    yield b'{"a":' * SIZE
    yield b"[" * SIZE
    yield b'"' + b"\\" * SIZE
    yield b"9" * SIZE
    yield b"[" + b"1e5," * SIZE


OF_TEXTS: dict[str, Callable[[str], Any]] = {
    "language": detect,
    "statements": lambda text: find(text, Speaker.USER, AT, "proj", "s0"),
    "sentences": sentences,
    "gist": lambda text: gist(text, 240),
    "project": lambda text: named_project(text, "proj"),
    "time words": lambda text: time_hint(text, AT),
    "words": searchable,
    "cut": lambda text: cut_text(text, 300, TOKENS, "[cut]"),
    "quoted": quoted,
    "fence": lambda text: strip_fenced(fence(text)),
    "windows": lambda text: windows(text, 1_500),
}
OF_TURNS: dict[str, Callable[[Turn], Any]] = {
    "extraction": extract_turn,
    "summary": lines_of,
    "chunks": chunks_of,
    "context": context_of,
}


def main(name: str) -> None:
    """Read everything that this reader is for."""
    if name == "json":
        for text in json_texts():
            with suppress(InvalidEvent):
                strict_json.loads(text)
    elif name in OF_TURNS:
        for turn in big_turns():
            OF_TURNS[name](turn)
    else:
        for unit in UNITS:
            read((unit * (SIZE // len(unit) + 1))[:SIZE], OF_TEXTS[name])


if __name__ == "__main__":
    main(sys.argv[1])
