"""Handles: short names for one part of one event, by which a cut text can be fetched in full."""

from typing import NamedTuple
from urllib.parse import quote, unquote

from lamina.errors import InvalidEvent

PREFIX = "lamina:"


class Handle(NamedTuple):
    """Names part `part` of event `event` (both from 0) of a turn."""

    session_id: str
    turn_id: str
    event: int
    part: int

    def __str__(self) -> str:
        """`lamina:<session>/<turn>/<event>/<part>`, names percent-encoded."""
        names = f"{quote(self.session_id, safe='')}/{quote(self.turn_id, safe='')}"
        return f"{PREFIX}{names}/{self.event}/{self.part}"

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Read a handle back. InvalidEvent where the text is none."""
        pieces = text.removeprefix(PREFIX).split("/")
        well_formed = text.startswith(PREFIX) and len(pieces) == 4
        if not (well_formed and all(p.isascii() and p.isdecimal() and len(p) < 7 for p in pieces[2:])):
            raise InvalidEvent([f"handle: {text[:80]!r} is not of the form lamina:session/turn/event/part"])
        return cls(unquote(pieces[0]), unquote(pieces[1]), int(pieces[2]), int(pieces[3]))
