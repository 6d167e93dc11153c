"""Memory as tables."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lamina.api import ContextResponse, EntityView, EpisodeView, SummaryView, TurnView
from lamina.event import Event

_CELL = 160
_SUBJECT = 20


def table(title: str, *columns: str) -> Table:
    """An empty table; its last column takes the room that is left."""
    made = Table(title=title, title_justify="left", title_style="bold", expand=True)
    for column in columns[:-1]:
        made.add_column(column, no_wrap=True)
    made.add_column(columns[-1], ratio=1)
    return made


def entities_table(title: str, entities: Sequence[EntityView]) -> Table:
    """Statements with their scope and kind."""
    made = table(title, "scope", "kind", "subject", "statement")
    made.columns[2].no_wrap, made.columns[2].max_width = False, _SUBJECT
    for entity in entities:
        made.add_row(*plain(scope_of(entity), entity.kind.value, entity.subject, entity.text))
    return made


def scope_of(entity: EntityView) -> str:
    """`global`, or the scope and whose it is."""
    owner = entity.project_id or entity.session_id if entity.scope.value != "global" else None
    return f"{entity.scope.value} {owner}" if owner else entity.scope.value


def episodes_table(title: str, episodes: Sequence[EpisodeView]) -> Table:
    """Pieces of past turns."""
    made = table(title, "session", "turn", "said by", "text")
    for episode in episodes:
        made.add_row(
            *plain(episode.session_id, shortened(episode.turn_id, 24), episode.speaker.value, episode.text)
        )
    return made


def turns_table(title: str, turns: Iterable[tuple[str, Sequence[dict[str, Any]]]]) -> Table:
    """Turns of the buffer, an event a row: (turn id, its events)."""
    made = table(title, "turn", "author", "parts")
    for turn_id, events in turns:
        for position, root in enumerate(events):
            event = Event.model_validate(root)
            made.add_row(
                *plain(shortened(turn_id, 24) if position == 0 else "", event.author, describe(event))
            )
    return made


def describe(event: Event) -> str:
    """An event's parts in one line."""
    words: list[str] = [part["text"] for part in event.parts if isinstance(part.get("text"), str)]
    words += [f"→ {call.get('name')}({call.get('args') or ''})" for _, call in event.function_calls()]
    words += [f"← {answer.get('name')}: {answer.get('response')}" for _, answer in event.function_responses()]
    return " ".join(words)


def plain(*cells: str) -> list[Text]:
    """Cells that show text as it is: brackets in it are no markup."""
    return [Text(shortened(" ".join(cell.split()), _CELL)) for cell in cells]


def shortened(text: str, width: int) -> str:
    """The text, cut with an ellipsis where it is longer."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def summary_panel(summary: SummaryView | None, title: str = "Summary") -> Panel:
    """The rolling summary."""
    if summary is None:
        return nothing(title)
    heading = f"{title}: of {summary.session_id}, version {summary.version}"
    return Panel(Text(summary.text), title=Text(heading), title_align="left")


def nothing(title: str) -> Panel:
    """What stands in for an empty table."""
    return Panel("none yet", title=title, title_align="left")


def print_found(console: Console, entities: Sequence[EntityView], episodes: Sequence[EpisodeView]) -> None:
    """Statements and pieces of past turns, best first."""
    title = "Statements (entities)"
    console.print(entities_table(title, entities) if entities else nothing(title))
    title = "Past turns (episodes)"
    console.print(episodes_table(title, episodes) if episodes else nothing(title))


def print_context(console: Console, answer: ContextResponse) -> None:
    """Every section of a context, and the block for the prompt."""
    turns = [(turn.turn_id, turn.events) for turn in oldest_first(answer.recent)]
    console.print(turns_table("Recent turns (buffer)", turns) if turns else nothing("Recent turns (buffer)"))
    console.print(summary_panel(answer.summary))
    print_found(console, answer.entities, answer.episodes)
    console.print(Panel(Text(answer.prompt), title="The block for the prompt", title_align="left"))
    tokens = ", ".join(f"{name} {count}" for name, count in answer.tokens.items())
    times = ", ".join(f"{name} {took:.1f}" for name, took in answer.timings_ms.items())
    console.print(Text(f"tokens: {tokens}   milliseconds: {times}", style="dim"))
    if answer.degraded:
        console.print(Text(f"missing: {', '.join(answer.degraded)}", style="yellow"))


def oldest_first(turns: Sequence[TurnView]) -> Sequence[TurnView]:
    """In the order of the conversation."""
    return sorted(turns, key=lambda turn: (turn.occurred_at, turn.turn_id))
