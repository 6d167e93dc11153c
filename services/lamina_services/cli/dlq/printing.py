"""Dead letters on a terminal. What they hold was written by strangers: no control character gets through."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lamina.pubsub.letter import DeadLetter
from lamina_services.cli.dlq.records import facts, value_of
from lamina_services.cli.dlq.selection import Group, groups
from lamina_services.cli.tables import nothing, plain, shortened, table

_SHOWN = 20
_DUMPED_BYTES = 1024
_ROW = 16


def print_groups(console: Console, letters: Sequence[DeadLetter], title: str) -> None:
    """By subscription and error, and then one by one."""
    if not letters:
        console.print(nothing(title))
        return
    now = datetime.now(UTC)
    shown = table(title, "subscription", "error", "count", "oldest", "failed", "reason")
    for group in groups(letters):
        shown.add_row(*plain(*_cells(group, now)))
    console.print(shown)


def print_letters(console: Console, letters: Sequence[DeadLetter], title: str) -> None:
    """One a row, as many as fit on a screen."""
    now = datetime.now(UTC)
    shown = table(title, "id", "subscription", "error", "age", "user", "reason")
    for letter in letters[:_SHOWN]:
        cells = (
            _id(letter),
            letter.subscription,
            letter.failure.error,
            ago(letter.parked_at, now),
            letter.owner.user_id or "?",
            letter.failure.reason,
        )
        shown.add_row(*plain(*(visible(shortened(cell, 200)) for cell in cells)))
    console.print(shown)
    if len(letters) > _SHOWN:
        console.print(f"… and {len(letters) - _SHOWN} more; --json gives all")


def print_plan(console: Console, letters: Sequence[DeadLetter], verb: str, done: str, *, json: bool) -> None:
    """What a command would do (`verb`), and what would then be `done` to the letters."""
    if json:
        told = [facts(letter) for letter in letters]
        console.print_json(data={f"would_{verb}": len(letters), "letters": told})
    elif letters:
        print_letters(console, letters, f"Would be {done}")
        console.print(f"{len(letters)} dead letters would be {done}; --yes does it")
    else:
        console.print("no dead letter matches")


def print_whole(console: Console, letter: DeadLetter) -> None:
    """What there is to know of one."""
    told = Table(show_header=False, box=None)
    for name, value in facts(letter).items():
        if value not in ("", None):
            told.add_row(name.replace("_", " "), Text(visible(str(value))))
    console.print(Panel(told, title="Dead letter", title_align="left"))
    attributes = Table(show_header=False, box=None)
    for name, value in sorted(letter.message.attributes.items()):
        attributes.add_row(Text(visible(name)), Text(visible(value)))
    console.print(Panel(attributes, title="Attributes", title_align="left"))
    console.print(Panel(Text(pretty(letter.message.data)), title="Data", title_align="left"))


def pretty(data: bytes) -> str:
    """Data as a person reads it: JSON indented, text as text, anything else by its bytes."""
    if (value := value_of(data)) is not None:
        return visible(json.dumps(value, indent=2, ensure_ascii=False))
    try:
        return visible(data.decode("utf-8")) or "(none)"
    except UnicodeDecodeError:
        return _dump(data)


def visible(text: str) -> str:
    """The text with each control character, which might steer the terminal, in its escaped form."""
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago, in its largest unit."""
    if moment is None:
        return "?"
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def times(count: int) -> str:
    """How often."""
    return "once" if count == 1 else f"{count} times"


def _cells(group: Group, now: datetime) -> tuple[str, ...]:
    return (
        visible(group.subscription),
        visible(shortened(group.error, 60)),
        str(group.count),
        ago(group.oldest, now),
        times(group.failures),
        visible(shortened(group.sample, 200)),
    )


def _id(letter: DeadLetter) -> str:
    return letter.event_id or letter.message_id


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _dump(data: bytes) -> str:
    """Offset, hexadecimal and what is ASCII of it."""
    rows = [f"{len(data):,} bytes that are no text"]
    for at in range(0, min(len(data), _DUMPED_BYTES), _ROW):
        row = data[at : at + _ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<{_ROW * 3}} {text}")
    if len(data) > _DUMPED_BYTES:
        rows.append(f"… {len(data) - _DUMPED_BYTES:,} more; export gives all")
    return "\n".join(rows)
