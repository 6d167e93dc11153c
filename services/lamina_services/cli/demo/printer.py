"""Prints the four memories, the assembled context, and what was expected of them."""

from collections.abc import Sequence

from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from lamina_services.cli.demo.expectations import Check
from lamina_services.cli.demo.player import Played
from lamina_services.cli.demo.tiers import Tiers
from lamina_services.cli.tables import (
    entities_table,
    episodes_table,
    turns_table,
)

_EPISODES_SHOWN = 8


def print_tiers(console: Console, played: Played) -> None:
    """What each memory holds of the main session's user."""
    tiers = played.tiers
    name = played.session.session_id
    events = [(turn.turn_id, [event.root for event in turn.events]) for turn in tiers.buffer]
    console.rule(f"[bold]What memory holds after {name}")
    console.print(
        turns_table(f"1 Buffer (Valkey): the latest {len(events)} turns of {name}, verbatim", events)
    )
    console.print(_summaries(tiers))
    current = [entity for entity in tiers.entities if entity.valid_to is None]
    console.print(entities_table("3 Entities (PostgreSQL): what holds, and where", current))
    shown = tiers.episodes[:_EPISODES_SHOWN]
    title = f"4 Episodes (PostgreSQL, text and vector): {len(tiers.episodes)} pieces, the first {len(shown)}"
    console.print(episodes_table(title, shown))


def print_context(console: Console, played: Played) -> None:
    """The question and the block that goes into the prompt."""
    question, answer = played.story.question, played.context
    console.rule(f"[bold]The context for {question.session_id}, a new session in {question.project_id}")
    console.print(Panel(Text(question.text), title="The user asks", title_align="left"))
    console.print(Panel(Text(answer.prompt), title="The agent's prompt gets", title_align="left"))
    total = answer.timings_ms.get("total", 0.0)
    console.print(Text(f"{answer.tokens.get('total', 0)} tokens, assembled in {total:.0f} ms", style="dim"))


def print_checks(console: Console, results: Sequence[Check]) -> None:
    """Each expectation, and whether it holds."""
    console.rule("[bold]Expectations")
    for check in results:
        mark = Text("✓ ", style="bold green") if check.holds else Text("✗ ", style="bold red")
        found = Text(f" (found: {check.found})" if not check.holds and check.found else "", style="red")
        console.print(mark + Text(check.what) + found)


def _summaries(tiers: Tiers) -> Panel:
    """The latest version, and which turns each version took over."""
    if not tiers.summaries:
        return Panel("none", title="2 Summary (PostgreSQL)", title_align="left")
    covers = [f"version {row.version} took over {', '.join(row.covers)}" for row in tiers.summaries]
    latest = Text(tiers.summaries[-1].lines)
    title = "2 Summary (PostgreSQL, cached in Valkey): what the buffer has let go of"
    return Panel(Group(latest, Text("; ".join(covers), style="dim")), title=title, title_align="left")
