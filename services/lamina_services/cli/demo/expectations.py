"""What must be so after the story, one by one. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.api import EntityView
from lamina.recall.render import quoted
from lamina_services.cli.demo.player import KEEP, Played
from lamina_services.cli.demo.story import Statement, has_tool_call


@dataclass(frozen=True)
class Check:
    """One expectation, and whether it holds."""

    what: str
    holds: bool
    found: str = ""
    """What was there instead, where it does not hold."""


def checks(played: Played) -> list[Check]:
    """Every expectation, in the order of the tiers."""
    return [*_buffer(played), *_summary(played), *_statements(played), *_apart(played), *_whole(played)]


def _buffer(played: Played) -> Iterator[Check]:
    total = len(played.published)
    held = played.tiers.buffer
    yield Check(
        f"the buffer was trimmed from {total} turns to the latest {KEEP}",
        [turn.turn_id for turn in held] == [turn.turn_id for turn in played.published[-KEEP:]],
        f"it holds {', '.join(turn.turn_id for turn in held) or 'nothing'}",
    )
    sent = {turn.turn_id: turn for turn in played.published}
    changed = [turn.turn_id for turn in held if turn.events != sent[turn.turn_id].events]
    with_tools = any(has_tool_call(turn) for turn in held)
    yield Check(
        "a tool call and its response are in the buffer, equal to what was published",
        with_tools and not changed,
        f"changed: {', '.join(changed)}" if changed else "no tool call is there",
    )


def _summary(played: Played) -> Iterator[Check]:
    covered = sorted(turn_id for version in played.tiers.summaries for turn_id in version.covers)
    trimmed = [turn.turn_id for turn in played.published[:-KEEP]]
    yield Check(
        "a committed summary covers every turn that left the buffer, once",
        covered == trimmed,
        f"it covers {', '.join(covered) or 'nothing'}",
    )
    summary = played.context.summary
    yield Check(
        "the new session carries the old session's summary over",
        summary is not None
        and summary.session_id == played.story.question.previous_session_id
        and bool(summary.text.strip()),
        f"it is of {summary.session_id}" if summary else "there is none",
    )


def _statements(played: Played) -> Iterator[Check]:
    for wanted in played.story.statements:
        kind = f" as a {' or '.join(wanted.kinds)}" if wanted.kinds else ""
        owner = f" {played.story.question.project_id}" if wanted.scope == "project" else ""
        fitting = [e for e in played.context.entities if _says(e.text, wanted.words)]
        yield Check(
            f"the context holds “{' … '.join(wanted.words)}” with scope {wanted.scope}{owner}{kind}",
            any(_fits(entity, wanted, played.story.question.project_id) for entity in fitting),
            "; ".join(f"{e.scope.value} {e.kind.value}: {e.text}" for e in fitting) or "it is not there",
        )
    learned = [
        e.text for e in played.tiers.entities if any(_says(e.text, (w,)) for w in played.story.never_learned)
    ]
    yield Check("nothing that a tool said became a statement", not learned, "; ".join(learned))


def _fits(entity: EntityView, wanted: Statement, project: str) -> bool:
    right_owner = entity.project_id == (project if wanted.scope == "project" else None)
    right_kind = not wanted.kinds or entity.kind.value in wanted.kinds
    return entity.scope.value == wanted.scope and right_owner and right_kind


def _apart(played: Played) -> Iterator[Check]:
    answer = played.context
    everything = "\n".join(
        [answer.prompt, *(e.text for e in answer.entities), *(e.text for e in answer.episodes)]
    )
    leaked = [word for word in played.story.absent if _says(everything, (word,))]
    yield Check("nothing of another project or another user is in the context", not leaked, ", ".join(leaked))


def _whole(played: Played) -> Iterator[Check]:
    answer = played.context
    yield Check("no part of memory was missing", not answer.degraded, ", ".join(answer.degraded))
    left_out = [entity.text for entity in answer.entities if quoted(entity.text) not in answer.prompt]
    yield Check(
        "the agent's prompt holds every statement of the context, word for word",
        bool(answer.entities) and not left_out,
        "; ".join(left_out) or "there are no statements",
    )


def _says(text: str, words: tuple[str, ...]) -> bool:
    return all(word.casefold() in text.casefold() for word in words)
