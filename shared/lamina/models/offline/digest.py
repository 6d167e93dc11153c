"""A few of a turn's own sentences that say what it was about, chosen by the `lede` package."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

from lamina.errors import ConfigurationError
from lamina.event import Event, Speaker
from lamina.fence import strip_fenced
from lamina.model import Turn
from lamina.models.offline.sentences import sentences

_USER_CHARS = 240
_AGENT_CHARS = 320
_CLIPPED_CHARS = 160
_READ_CHARS = 20_000
_WORDS = re.compile(r"\w+")


def digest_of(turn: Turn, stated: Iterable[str]) -> Iterator[str]:
    """Lines of digest, each led by who said it; what `stated` has word for word is not said again."""
    known = {_key(text) for text in stated}
    said: dict[str, list[str]] = {}
    tools: dict[str, int] = {}
    for event in turn.events:
        for name, size in _outputs(event):
            tools[name] = tools.get(name, 0) + size
        if event.speaker is not Speaker.TOOL:
            name = "user" if event.speaker is Speaker.USER else event.author or "agent"
            said.setdefault(name, []).extend(event.texts())
    for author, texts in said.items():
        limit = _USER_CHARS if author == "user" else _AGENT_CHARS
        if chosen := gist("\n\n".join(texts), limit, known):
            yield f"{author}: {chosen}"
    for name, size in tools.items():
        # Its size, never its words: what a tool returned is data, and the episode has it in full.
        yield f"{name} returned {size:,} characters"


def gist(text: str, limit: int, known: set[str] | None = None) -> str:
    """The sentences of the text that carry most, in at most about `limit` characters."""
    prose = strip_fenced(text)[:_READ_CHARS]
    own = [sentence.text for sentence in sentences(prose)]
    fresh = [sentence for sentence in own if not _is_known(sentence, known or set())]
    if own and not fresh:
        return ""
    if sum(map(len, fresh)) + len(fresh) <= limit and fresh:
        return " ".join(fresh)
    chosen = " ".join(_lede().summarize("\n\n".join(fresh), limit).summary.split()) if fresh else ""
    if _WORDS.search(chosen):
        return chosen
    return clip(" ".join(prose.split()), min(limit, _CLIPPED_CHARS)) if _WORDS.search(prose) else ""


def clip(text: str, limit: int) -> str:
    """The text's beginning, cut after a word."""
    if len(text) <= limit:
        return text
    cut = text.rfind(" ", limit // 2, limit)
    return text[: cut if cut > 0 else limit] + " …"


@cache
def _lede() -> Any:
    """The package, which has no type stubs; it comes with the extra `local`."""
    try:
        return import_module("lede")
    except ImportError as error:
        raise ConfigurationError("the offline model needs `lede`: install lamina[local]") from error


def _outputs(event: Event) -> Iterator[tuple[str, int]]:
    for _, response in event.function_responses():
        name = response.get("name")
        yield (name if isinstance(name, str) and name else "tool"), len(str(response.get("response", "")))


def _is_known(sentence: str, known: set[str]) -> bool:
    key = _key(sentence)
    return any(key in text or (text in key and len(text) * 2 > len(key)) for text in known)


def _key(text: str) -> str:
    return " ".join(_WORDS.findall(text.casefold()))
