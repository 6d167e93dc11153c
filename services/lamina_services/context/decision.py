"""What goes into a context, from what the buffer and the database gave. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lamina.api import ContextRequest, EntityView, EpisodeView, SummaryView, TurnView
from lamina.fence import fence
from lamina.model import Kind, SessionKey, Summary, SummaryLine, Turn
from lamina.ports import Recalled, TokenCounter
from lamina.recall import render
from lamina.recall.budget import Offer, Section, fill
from lamina.recall.elide import elide, size_of, without_orphans

Scored = TypeVar("Scored", EntityView, EpisodeView)

LATEST_FACTOR = 4
"""Tool output of the latest turn may be this many times longer: the agent is still working with it."""

EPISODE_FLOOR = 0.5
"""Episodes that score less than this share of the best are left out: answers were not among them."""
_SHORTEST_TEXT = 48
"""Tokens of each text in the least that is shown of a turn."""
_SMALLEST_TURN = 24
"""Tokens below which no further turn is tried."""
_SHARES = {"entities": 0.25, "summary": 0.25, "recent": 0.3, "episodes": 0.2}


@dataclass(frozen=True)
class Material:
    """All there is to choose from."""

    turns: tuple[Turn, ...] = ()
    """What no summary covers, oldest first."""
    summary: Summary | None = None
    recalled: Recalled = field(default_factory=Recalled)
    memory_missing: bool = False
    """The database did not answer: rules are then known from the summary only, and bind from there."""


@dataclass(frozen=True)
class Assembled:
    """What was chosen, and the prompt's block."""

    summary: SummaryView | None
    recent: tuple[TurnView, ...]
    entities: tuple[EntityView, ...]
    episodes: tuple[EpisodeView, ...]
    prompt: str
    tokens: dict[str, int]


@dataclass(frozen=True)
class _Shown:
    """A recent turn: in the prompt, and as a view where that fits as well."""

    text: str
    offer: Offer
    view: TurnView
    fits: bool


@dataclass(frozen=True)
class _Lines:
    """The chosen memories, each section in the order it is read."""

    rules: tuple[str, ...]
    entities: tuple[EntityView, ...]
    summary: tuple[SummaryLine, ...]
    episodes: tuple[EpisodeView, ...]
    recent: tuple[str, ...]

    def sections(self) -> dict[str, list[tuple[str, list[str]]]]:
        """(heading, lines) by section: what seldom changes first, so that models can cache the prefix."""
        preferences = [e for e in self.entities if e.kind is Kind.PREFERENCE]
        knowledge = [e for e in self.entities if e.kind is not Kind.PREFERENCE]
        return {
            "rules": [(render.RULES, list(self.rules))],
            "entities": [
                (render.PREFERENCES, [render.entity_line(e) for e in preferences]),
                (render.KNOWLEDGE, [render.entity_line(e) for e in knowledge]),
            ],
            "summary": [(render.SUMMARY, [render.summary_line(line) for line in self.summary])],
            "episodes": [(render.EPISODES, [render.episode_line(e) for e in self.episodes])],
            "recent": [(render.RECENT, list(self.recent))],
        }

    def block(self) -> str:
        return render.block([part for parts in self.sections().values() for part in parts])


def assemble(
    request: ContextRequest, material: Material, *, tokens: TokenCounter, tool_output_tokens: int
) -> Assembled:
    """Choose and render. The prompt keeps to `request.token_budget` unless the rules alone exceed it."""
    entities = material.recalled.entities[: request.max_entities]
    rules, summary = _pinned(material, entities)
    episodes = _episodes(request, material)
    frame = "\n".join((render.HEADER, *render.HEADINGS, *rules))
    budget = request.token_budget - tokens.count(fence(frame)) - len(rules)
    entity_offers = _offers(entities, render.entity_line, tokens)
    summary_offers = _summary_offers(summary, tokens)
    episode_offers = _offers(episodes, render.episode_line, tokens)
    others = sum(offer.tokens for offer in (*entity_offers, *summary_offers, *episode_offers))
    room = budget - min(others, int(budget * (1 - _SHARES["recent"])))
    views = _recent(material.turns, room, request.token_budget, tokens, tool_output_tokens)
    chosen = fill(
        budget,
        [
            Section("recent", room / max(budget, 1), [shown.offer for shown in views], unbroken=True),
            Section("entities", _SHARES["entities"], entity_offers),
            Section("summary", _SHARES["summary"], summary_offers, unbroken=True),
            Section("episodes", _SHARES["episodes"], episode_offers),
        ],
    )
    kept = [views[i] for i in reversed(chosen["recent"])]
    by_need = _by_need(summary)
    kept_lines = {by_need[i] for i in chosen["summary"]}
    lines = _Lines(
        rules=tuple(rules),
        entities=tuple(sorted((entities[i] for i in chosen["entities"]), key=_stable)),
        summary=tuple(line for index, line in enumerate(summary) if index in kept_lines),
        episodes=tuple(episodes[i] for i in chosen["episodes"]),
        recent=tuple(shown.text for shown in kept),
    )
    lines, prompt = _within(request.token_budget, lines, tokens)
    recent = [shown.view for shown in kept[len(kept) - len(lines.recent) :] if shown.fits]
    shown = {entity.entity_id for entity in lines.entities}
    return Assembled(
        summary=_summary_view(material.summary),
        recent=tuple(without_orphans(recent, request.session_id)),
        entities=(*material.recalled.rules, *(e for e in entities if e.entity_id in shown)),
        episodes=lines.episodes,
        prompt=prompt,
        tokens=_counts(lines, prompt, tokens),
    )


def newest(session: SessionKey, cached: Summary | None, stored: Summary | None) -> Summary | None:
    """The session's own summary of the highest version, from either side, else the inherited one."""
    own = [s for s in (stored, cached) if s is not None and s.session == session and s.version > 0]
    return max(own, key=lambda summary: summary.version) if own else stored or cached


def _pinned(material: Material, entities: Sequence[EntityView]) -> tuple[list[str], list[SummaryLine]]:
    """The rules' lines, and the summary's lines that repeat neither a rule nor another entity."""
    views = sorted(material.recalled.rules, key=_stable)
    said = {_plain(view.text) for view in (*views, *entities)}
    lines = [
        line
        for line in (material.summary.current if material.summary else ())
        if _plain(line.text) not in said
    ]
    binding = [line for line in lines if line.pinned] if material.memory_missing else []
    rendered = [*map(render.entity_line, views), *map(render.summary_line, binding)]
    return rendered, [line for line in lines if line not in binding]


def _episodes(request: ContextRequest, material: Material) -> tuple[EpisodeView, ...]:
    """The episodes worth their tokens: not far behind the best, said once, and not in the recent turns."""
    at_hand = {(request.session_id, turn.turn_id) for turn in material.turns}
    found = material.recalled.episodes
    floor = max((episode.score for episode in found), default=0.0) * EPISODE_FLOOR
    fresh = {
        episode.text: episode
        for episode in reversed(found)
        if (episode.session_id, episode.turn_id) not in at_hand and episode.score >= floor
    }
    return tuple(reversed(fresh.values()))[: request.max_episodes]


def _recent(
    turns: Sequence[Turn], room: int, whole: int, tokens: TokenCounter, tool_output_tokens: int
) -> list[_Shown]:
    """Newest first: each turn's lines and view; no more than could fit.

    The lines get `room` tokens, the views `whole`. The newest turn is always there, its lines cut to what
    there is room for, with half left to the turns before it.
    """
    found: list[_Shown] = []
    left = room
    for age, turn in enumerate(reversed(turns)):
        view, weight = _elided(turn, tool_output_tokens * (1 if age else LATEST_FACTOR), whole, tokens)
        target = left if age or len(turns) == 1 else max(left // 2, min(left, 200))
        text = _fitting(view, target, tokens)
        size = tokens.count(text) + 1
        if found and size > left:
            break
        left, whole = left - size, whole - weight
        found.append(_Shown(text, Offer(size), view, fits=whole >= 0 or not found))
        if left < _SMALLEST_TURN:
            break
    return found


def _elided(turn: Turn, limit: int, whole: int, tokens: TokenCounter) -> tuple[TurnView, int]:
    """The turn's view and its tokens: where there is little room, each output is cut shorter."""
    view = elide(turn, limit, tokens)
    weight = _weight(view, tokens)
    if weight > whole and view.elided:
        limit = max(_SHORTEST_TEXT, min(limit, limit * max(whole, 0) // weight))
        view = elide(turn, limit, tokens)
        weight = _weight(view, tokens)
    return view, weight


def _weight(view: TurnView, tokens: TokenCounter) -> int:
    return size_of("".join(map(str, view.events)), tokens)


def _fitting(view: TurnView, target: int, tokens: TokenCounter) -> str:
    """The turn's lines in about `target` tokens: long texts cut, and in a long turn the middle left out."""
    limit = max(target // 4, _SHORTEST_TEXT)
    lines = render.turn_lines(view, limit, tokens)
    if _size(lines, tokens) > target and limit > _SHORTEST_TEXT:
        lines = render.turn_lines(view, max(target // (len(lines) + 1), _SHORTEST_TEXT), tokens)
    if _size(lines, tokens) <= target:
        return "\n".join(lines)
    first, rest = lines[:2], lines[2:]  # when it was, and what was asked
    left = target - _size([*first, render.steps_left_out(len(rest))], tokens)
    kept: list[str] = []
    while rest and (size := tokens.count(rest[-1]) + 1) <= left:
        left -= size
        kept.insert(0, rest.pop())
    return "\n".join((*first, *([render.steps_left_out(len(rest))] if rest else ()), *kept))


def _size(lines: Sequence[str], tokens: TokenCounter) -> int:
    return tokens.count("\n".join(lines)) + 1


def _within(budget: int, lines: _Lines, tokens: TokenCounter) -> tuple[_Lines, str]:
    """Let go of the least needed until the block fits: a sum of estimates can be less than their whole."""
    while True:
        prompt = lines.block()
        if tokens.count(prompt) <= budget:
            return lines, prompt
        if lines.episodes:
            lines = replace(lines, episodes=lines.episodes[:-1])
        elif lines.recent[1:]:
            lines = replace(lines, recent=lines.recent[1:])
        elif lines.summary:
            lines = replace(lines, summary=lines.summary[:-1])
        elif lines.entities:
            lines = replace(lines, entities=lines.entities[:-1])
        elif lines.recent:
            lines = replace(lines, recent=())
        else:
            return lines, prompt


def _offers(items: Sequence[Scored], line: Callable[[Scored], str], tokens: TokenCounter) -> list[Offer]:
    return [Offer(tokens.count(line(item)) + 1, item.score) for item in items]


def _by_need(lines: Sequence[SummaryLine]) -> list[int]:
    """Indices of a summary's lines, what is pinned first and then the newest."""
    return sorted(range(len(lines)), key=lambda i: (not lines[i].pinned, -i))


def _summary_offers(lines: Sequence[SummaryLine], tokens: TokenCounter) -> list[Offer]:
    return [Offer(tokens.count(render.summary_line(lines[i])) + 1) for i in _by_need(lines)]


def _summary_view(summary: Summary | None) -> SummaryView | None:
    if summary is None or not summary.lines:
        return None
    return SummaryView(session_id=summary.session.session_id, version=summary.version, text=summary.render())


def _counts(lines: _Lines, prompt: str, tokens: TokenCounter) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, parts in lines.sections().items():
        texts = [text for heading, all_ in parts if all_ for text in (heading, *all_)]
        counts[name] = tokens.count("\n".join(texts))
    return {**counts, "total": tokens.count(prompt)}


def _stable(entity: EntityView) -> tuple[str, str, str, str]:
    """An order that the question does not change, so that the prompt's beginning stays the same."""
    return (entity.scope.value, entity.project_id or "", entity.subject, str(entity.entity_id))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
