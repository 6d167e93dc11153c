"""Reads the word lists and patterns in `data/`: sections of lines, with macros.

<name> = text       a macro; <name> in a later line stands for its text
[section]           begins a section
one entry a line    an indented line continues the one above; # begins a comment
"""

import re
from functools import cache
from pathlib import Path

_DATA = Path(__file__).with_name("data")
_MACRO = re.compile(r"<([a-z-]+)>")
_SECTION = re.compile(r"\[([a-z: -]+)\]")


@cache
def sections(name: str) -> dict[str, list[str]]:
    """The sections of `data/<name>.txt`, each with its entries."""
    macros: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for entry in _entries((_DATA / f"{name}.txt").read_text("utf-8")):
        left, equals, right = entry.partition(" = ")
        expanded = _MACRO.sub(lambda used: macros[used.group(1)], right if equals else entry)
        if equals and (macro := _MACRO.fullmatch(left)):
            macros[macro.group(1)] = expanded
        elif section := _SECTION.fullmatch(entry):
            current = found.setdefault(section.group(1), [])
        else:
            current.append(expanded)
    return found


def _entries(source: str) -> list[str]:
    entries: list[str] = []
    for line in source.splitlines():
        if line.startswith(" ") and entries:
            entries[-1] += line.strip()
        elif line and not line.startswith("#"):
            entries.append(line)
    return entries
