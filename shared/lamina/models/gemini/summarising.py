"""The tasks `summarise` and `consolidate`: many turns, or old episodes, in a few lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from lamina.event import Speaker
from lamina.fence import strip_fenced
from lamina.model import SummaryLine, Turn
from lamina.models.gemini.asking import Prompt
from lamina.models.gemini.prompts import CONSOLIDATE_RULES, SUMMARISE_RULES
from lamina.models.gemini.quoting import TOOL_LIMIT, block, line_of, occurs_in, quote, said_in
from lamina.models.tokens import EstimatedTokens
from lamina.ports import OldEpisode
from lamina.text import storable

_COUNT = EstimatedTokens().count
_SLACK = 1.5
"""How far over its budget a summary may be before its oldest lines are dropped."""


class LineKind(StrEnum):
    """What a line is; see `lamina.model.SummaryLine`."""

    RULE = "rule"
    VETO = "veto"
    PREFERENCE = "preference"
    DECISION = "decision"
    GOAL = "goal"
    FACT = "fact"
    DIGEST = "digest"


class Line(BaseModel):
    """One line as the model gives it; nothing in it is trusted."""

    kind: LineKind
    text: str
    source: str
    evidence: str = ""


class Lines(BaseModel):
    """The model's answer."""

    lines: list[Line]


@dataclass(frozen=True)
class Source:
    """What a line can stand on."""

    turn_id: str
    at: datetime
    user: str = ""
    """What the user said in it."""
    other: str = ""
    """What a tool returned or the agent said in it."""
    project_id: str | None = None
    line: SummaryLine | None = None
    """The earlier line, where it is one."""


def summary_sources(previous: Sequence[SummaryLine], turns: Sequence[Turn]) -> dict[str, Source]:
    """Earlier lines that may change as P1 …, turns as T1 …"""
    sources: dict[str, Source] = {}
    loose = [line for line in previous if not line.pinned]
    for number, line in enumerate(loose, 1):
        sources[f"P{number}"] = Source(line.turn_id, line.at, project_id=line.project_id, line=line)
    for number, turn in enumerate(turns, 1):
        said = said_in(turn)
        user = "\n".join(one.text for one in said if one.speaker is Speaker.USER)
        other = "\n".join(f"{one.text}\n{one.tools}" for one in said if one.speaker is not Speaker.USER)
        sources[f"T{number}"] = Source(turn.turn_id, turn.occurred_at, user, other, turn.project_id)
    return sources


def episode_sources(episodes: Sequence[OldEpisode]) -> dict[str, Source]:
    """Episodes as E1 …"""
    sources: dict[str, Source] = {}
    for number, episode in enumerate(episodes, 1):
        by_user = episode.speaker == Speaker.USER.value
        user, other = (episode.text, "") if by_user else ("", episode.text)
        sources[f"E{number}"] = Source(episode.turn_id, episode.occurred_at, user, other)
    return sources


def summary_prompt(previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int) -> Prompt:
    """The prompt for a rolling summary."""
    kept = [f"{line.kind}: {quote(line.text)}" for line in previous if line.pinned]
    loose = [line for line in previous if not line.pinned]
    earlier = [
        f"P{number} [{line.at:%Y-%m-%d}] {line.kind}: {quote(line.text)}"
        for number, line in enumerate(loose, 1)
    ]
    told = [
        f"T{number} [{turn.occurred_at:%A %Y-%m-%d %H:%M}] {line_of(said)}"
        for number, turn in enumerate(turns, 1)
        for said in said_in(turn)
    ]
    size = f"Write at most {budget} tokens in all."
    data = "\n\n".join([block("kept", kept), block("earlier", earlier), block("turns", told), size])
    return Prompt("summarise", SUMMARISE_RULES, data)


def consolidation_prompt(episodes: Sequence[OldEpisode], budget: int) -> Prompt:
    """The prompt for old episodes."""
    told = [
        f"E{number} [{episode.occurred_at:%A %Y-%m-%d}] {episode.speaker}: "
        + quote(strip_fenced(episode.text), TOOL_LIMIT if episode.speaker == Speaker.TOOL.value else 4_000)
        for number, episode in enumerate(episodes, 1)
    ]
    size = f"Write at most {budget} tokens in all."
    return Prompt("consolidate", CONSOLIDATE_RULES, "\n\n".join([block("records", told), size]))


def lines_of(answer: Lines, sources: dict[str, Source]) -> list[SummaryLine]:
    """The lines that stand on a known source. A wish the user never uttered loses its rank."""
    lines: list[SummaryLine] = []
    for given in answer.lines:
        source = sources.get(given.source.strip().strip("[]").upper())
        checked = _checked(given, source) if source is not None else None
        if source is not None and checked is not None and checked[1]:
            kind, text = checked
            ordinal = sum(1 for line in lines if line.turn_id == source.turn_id)
            lines.append(
                SummaryLine(
                    kind=kind.value,
                    text=text,
                    turn_id=source.turn_id,
                    project_id=source.project_id,
                    ordinal=ordinal,
                    at=source.at,
                )
            )
    return lines


def with_pinned(previous: Sequence[SummaryLine], lines: Sequence[SummaryLine]) -> tuple[SummaryLine, ...]:
    """The rules and vetoes so far, word for word, then the new lines that do not repeat one."""
    pinned = [line for line in previous if line.pinned]
    texts = {line.text for line in pinned}
    return (*pinned, *(line for line in lines if line.text not in texts))


def fitted(lines: Sequence[SummaryLine], budget: int) -> tuple[SummaryLine, ...]:
    """The lines, less the oldest loose ones where they are far over the budget."""
    sizes = {id(line): _COUNT(line.text) + 10 for line in lines}
    over = sum(sizes.values()) - budget * _SLACK
    dropped: set[int] = set()
    for line in sorted((line for line in lines if not line.pinned), key=lambda line: line.at)[:-1]:
        if over <= 0:
            break
        over -= sizes[id(line)]
        dropped.add(id(line))
    return tuple(line for line in lines if id(line) not in dropped)


def _checked(given: Line, source: Source) -> tuple[LineKind, str] | None:
    """(kind, text), or None for a claim that a tool or the agent planted."""
    text = storable(" ".join(given.text.split()))
    if given.kind not in (LineKind.RULE, LineKind.VETO, LineKind.PREFERENCE):
        return given.kind, text
    if source.line is not None:  # an earlier loose line does not rise in rank
        return LineKind(source.line.kind), text
    if occurs_in(given.evidence, source.user):
        pinned = given.kind is not LineKind.PREFERENCE
        return given.kind, storable(" ".join(given.evidence.split())) if pinned else text
    return None if occurs_in(given.evidence, source.other) else (LineKind.DIGEST, text)
