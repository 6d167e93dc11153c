"""Summaries and consolidations: lines derived turn by turn, then merged as a set."""

import re
from collections.abc import Iterator, Sequence

from lamina.event import Speaker
from lamina.model import Scope, SummaryLine, Turn
from lamina.models.offline.digest import digest_of, gist
from lamina.models.offline.extraction import Found, extract_turn, find
from lamina.models.offline.lines import merge
from lamina.ports import OldEpisode

_LEAD = re.compile(r"^\[\d{4}-\d\d-\d\d\] ([^:\n]{1,256}): ")
_EPISODE_CHARS = 320
_TOOL_CHARS = 160
_SPEAKERS = {speaker.value: speaker for speaker in Speaker}


def summarise_turns(
    previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
) -> tuple[SummaryLine, ...]:
    """The earlier lines and the turns' own in about `budget` tokens; order and batches make no difference."""
    return merge([*previous, *(line for turn in turns for line in lines_of(turn))], budget)


def lines_of(turn: Turn) -> list[SummaryLine]:
    """A turn's lines: what it states, then a digest of the rest. A pure function of the turn."""
    statements = extract_turn(turn)
    lines = [
        SummaryLine(
            kind=statement.kind.value,
            text=statement.text,
            turn_id=turn.turn_id,
            project_id=turn.project_id if statement.scope is Scope.SESSION else statement.project_id,
            ordinal=statement.ordinal,
            at=statement.said_at,
            subject="/".join(statement.slot),
        )
        for statement in statements
    ]
    for text in digest_of(turn, [statement.text for statement in statements]):
        lines.append(
            SummaryLine(
                kind="digest",
                text=text,
                turn_id=turn.turn_id,
                project_id=turn.project_id,
                ordinal=len(lines),
                at=turn.occurred_at,
            )
        )
    return lines


def consolidate_episodes(episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
    """Old episodes in about `budget` tokens, each line naming its turn; something is always said of them."""
    turns: dict[tuple[str, str], list[OldEpisode]] = {}
    for episode in episodes:
        turns.setdefault((episode.session_id, episode.turn_id), []).append(episode)
    lines = [line for pieces in turns.values() for line in _lines_of_episodes(pieces)]
    merged = merge(lines, budget)
    # A budget too small for any line still leaves the newest: an empty answer would say nothing happened.
    return merged or tuple(sorted(lines, key=lambda line: (line.at, line.turn_id, line.ordinal))[-1:])


def _lines_of_episodes(pieces: list[OldEpisode]) -> Iterator[SummaryLine]:
    ordinal = 0
    for piece in pieces:
        lead = _LEAD.match(piece.text)
        name, body = (lead.group(1), piece.text[lead.end() :]) if lead else (piece.speaker, piece.text)
        for kind, text, subject in _said(piece, name, body):
            yield SummaryLine(
                kind=kind,
                text=text,
                turn_id=piece.turn_id,
                ordinal=ordinal,
                at=piece.occurred_at,
                subject=subject,
            )
            ordinal += 1


def _said(piece: OldEpisode, name: str, body: str) -> Iterator[tuple[str, str, str]]:
    """(kind, text, subject) of each line that a chunk gives."""
    speaker = _SPEAKERS.get(piece.speaker, Speaker.AGENT)
    if speaker is Speaker.TOOL:
        chosen = gist(body, _TOOL_CHARS)
        yield "digest", f"{name} returned: “{chosen}”" if chosen else f"{name} returned data", ""
        return
    found = list(find(body, speaker, piece.occurred_at))
    for each in found:
        yield each.label.kind.value, each.text, _slot(each, piece)
    rest = gist(body, _EPISODE_CHARS, {" ".join(re.findall(r"\w+", each.text.casefold())) for each in found})
    if rest or not found:
        yield "digest", f"{name}: {rest or '…'}", ""


def _slot(found: Found, piece: OldEpisode) -> str:
    owner = found.project_id if found.scope is Scope.PROJECT else ""
    owner = piece.session_id if found.scope is Scope.SESSION else owner
    return "/".join((found.scope.value, owner or "", found.subject))
