"""Cuts a message into the sentences its author wrote, leaving out code, logs and quoted text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lamina.fence import strip_fenced

_LIMIT = 100_000
"""Characters of one message that are read: what follows is a paste, not somebody's words."""
LONGEST = 1_000
"""A longer sentence is a dump, not a statement."""

_CODE_BLOCK = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
# Markup around what a program put into the message: <output>...</output>, <task-note>...</task-note>.
_TAG = re.compile(
    r"<((?:logs?|output|document|quote|result|stdout|stderr|pre|code|tool)\b|[a-zA-Z]\w{0,40}[-_][\w-]{1,60})[^<>]{0,400}>"
)
_QUOTE_LINE = re.compile(r"\s*(?:>|\|)")
_LOG_LINE = re.compile(
    r"""\s*(?:
        \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d            # 2026-01-05T10:00 ...
      | \[?\d\d:\d\d:\d\d\b
      | \[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL|PANIC)\b\]?\s*[:\]|\[-]
      | Traceback\ \(most | File\ "[^"]+",\ line | Caused\ by: | at\ [\w.$<>]+\(
      | (?:\w+\.)*\w+(?:Error|Exception|Warning):\s
      | (?:\$|\#|>>>|\.\.\.|%|PS>|[\w.-]+@[\w.-]+[:~].*[$\#])\s+\S
      | (?:\+\+\+|---|@@|diff\ --git)\s
      | [\[{}\])+]
      | (?:-\ )?[a-z][\w-]*:\s+\S*[@/]\S*\s*$     # a line of YAML
      | (?:def|class|import|from|return|function|const|let|var|public|private
          |SELECT|INSERT|UPDATE|CREATE|ALTER|DROP)
        \ [\w*"'(].*[=({;:,*]
    )""",
    re.VERBOSE,
)
_BULLET = re.compile(r"^\s*(?:[-*•–+]|\d{1,2}[.)]|[a-z]\))\s+(?=\S)")
_HEADING = re.compile(r"^\s*#{1,6}\s+")
_EMPHASIS = re.compile(r"\*\*|__")
_END = re.compile(
    r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’»)\]]))\s+(?=[^\sa-zà-öø-ÿ])"  # a stop, then anything but a small letter
    r"|(?<=[.!?])\s+(?=[a-zà-öø-ÿ]+\s)|;\s+|(?<=[。！？])"  # careless typing, and marks that need no space
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|dr|dra|mr|mrs|ms|st|no|nº|núm|num|sr|sra|srta|prof|inc|ltd|fig|"
    r"p\.\s?ej|ej|ex|p\.\s?ex|aprox|pág|[a-z])\.$",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 12


@dataclass(frozen=True)
class Sentence:
    """A sentence as it was written, with white space runs made one space."""

    text: str
    header: str = ""
    """The line ending in a colon that this list item stands under."""
    asked: bool = False
    """It is a question."""


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a message, in order. Fenced memory, code blocks, logs and quotations yield none."""
    prose = _without_tagged(_CODE_BLOCK.sub("\n", strip_fenced(text[:_LIMIT])))
    header = ""
    for line, bullet in _lines(prose):
        if not line:
            header = header if bullet else ""
            continue
        if not bullet:
            header = ""
        pieces = [piece for piece in _split(line) if piece.strip(" .;,")]
        for piece in pieces:
            asked = piece.rstrip("\"'”»)").endswith("?") or piece.startswith("¿")
            if len(piece) <= LONGEST:
                yield Sentence(piece, header if bullet else "", asked)
        if pieces and pieces[-1].endswith(":"):
            header = pieces[-1]


def _without_tagged(text: str) -> str:
    """The text without what stands between such tags. One pass: no pattern that could backtrack."""
    kept: list[str] = []
    unclosed: set[str] = set()
    position = 0
    for tag in _TAG.finditer(text):
        closing = f"</{tag.group(1)}>"
        if tag.start() < position or closing in unclosed:
            continue
        end = text.find(closing, tag.end())
        if end < 0:
            unclosed.add(closing)
            continue
        kept.append(text[position : tag.start()])
        position = end + len(closing)
    return "\n".join((*kept, text[position:]))


def _lines(prose: str) -> Iterator[tuple[str, bool]]:
    """(line, whether it is a list item); soft-wrapped lines joined, an empty line ends a paragraph."""
    pending, bulleted = "", False
    for raw in prose.split("\n"):
        if _QUOTE_LINE.match(raw) or _LOG_LINE.match(raw) or raw.startswith(("    ", "\t")):
            yield from ((pending, bulleted),) if pending else ()
            # An indented list item is still an item; any other indented line is code.
            pending, bulleted = (
                (_clean(raw), True) if _BULLET.match(raw) and not _LOG_LINE.match(raw) else ("", False)
            )
            continue
        line, bullet = _clean(raw), bool(_BULLET.match(raw))
        wrapped = pending and line and not bullet and line[0].islower() and pending[-1] not in ".!?:;"
        if wrapped:
            pending = f"{pending} {line}"
            continue
        if pending:
            yield pending, bulleted
        if not line:
            yield "", bulleted  # a blank line inside a list keeps its header
        pending, bulleted = line, bullet
    if pending:
        yield pending, bulleted


def _clean(raw: str) -> str:
    line = _HEADING.sub("", _BULLET.sub("", raw, count=1), count=1)
    return " ".join(_EMPHASIS.sub("", line).split())


def _split(line: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(line):
        # Its end is enough: a line of nothing but abbreviations would be read anew for each of them.
        if _ABBREVIATION.search(line[max(start, end.start() - _LONGEST_ABBREVIATION) : end.start()]):
            continue
        yield line[start : end.start()].strip()
        start = end.end()
    yield line[start:].strip()
