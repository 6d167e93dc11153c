"""Compares what is remembered with what was told, and with what a calm telling left. Pure."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from lamina.model import Turn
from lamina_services.chaos.memory import Memory, Rows
from lamina_services.chaos.story import Poison, Story, key_of

_SHOWN = 240


@dataclass
class Verdict:
    """What is wrong, a line each. Empty lists are what is wanted."""

    lost: list[str] = field(default_factory=list[str])
    """Told, and not in the log; or neither in the buffer nor covered by a summary; or a row is missing."""
    duplicated: list[str] = field(default_factory=list[str])
    """In the buffer and covered as well; or a row that the calm telling does not have."""
    differing: list[str] = field(default_factory=list[str])
    """Not equal to what was told, or to what the calm telling left."""
    poison: list[str] = field(default_factory=list[str])
    """Poison that is not parked as it should be, or something parked that is no poison."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.by_kind().values())

    def by_kind(self) -> dict[str, list[str]]:
        """The findings by what is wrong."""
        return {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "differing": self.differing,
            "poison": self.poison,
        }

    def compare(self, kind: str, rows: Rows, calm: Rows) -> None:
        """Note how these rows differ from those that a calm telling left."""
        self.lost.extend(f"{kind} {key}: missing" for key in calm.keys() - rows.keys())
        self.duplicated.extend(f"{kind} {key}: not in the calm telling" for key in rows.keys() - calm.keys())
        self.differing.extend(
            f"{kind} {key}: {_differences(rows[key], calm[key])}"
            for key in rows.keys() & calm.keys()
            if rows[key] != calm[key]
        )


def judged(story: Story, memory: Memory, parked: Collection[Poison], calm: Memory | None = None) -> Verdict:
    """Against what was told and, where it is given, the memory that a calm telling left."""
    verdict = Verdict()
    _judge_log(verdict, story, memory)
    _judge_buffers(verdict, story, memory)
    verdict.poison.extend(f"{poison}: not parked" for poison in story.poison - set(parked))
    verdict.poison.extend(f"{poison}: parked, and no poison" for poison in set(parked) - story.poison)
    if calm is not None:
        for kind, rows in memory.kinds.items():
            verdict.compare(kind, rows, calm.kinds[kind])
        verdict.compare("covered turn", memory.covered, calm.covered)
    return verdict


def _judge_log(verdict: Verdict, story: Story, memory: Memory) -> None:
    """Every turn is in the log as it was told, and nothing else is."""
    told = {_key(turn): turn.to_json() for turn in story.turns}
    verdict.lost.extend(f"turn {key}: not in the log" for key in told.keys() - memory.turns.keys())
    verdict.duplicated.extend(f"turn {key}: never told" for key in memory.turns.keys() - told.keys())
    for key in told.keys() & memory.turns.keys():
        if memory.turns[key] != told[key]:
            verdict.differing.append(f"turn {key}: in the log it is {str(memory.turns[key])[:_SHOWN]}")


def _judge_buffers(verdict: Verdict, story: Story, memory: Memory) -> None:
    """Summaries cover exactly what has left the buffer: all but the latest turn of each session."""
    by_session = sorted(story.turns, key=lambda turn: (key_of(turn).rpartition("/")[0], turn.order))
    for session, said in groupby(by_session, key=lambda turn: turn.session):
        told = list(said)
        held = {turn.turn_id: turn for turn in memory.buffers[session.digest].turns}
        for turn in told:
            covered, key = _key(turn) in memory.covered, key_of(turn)
            if not covered and turn.turn_id not in held:
                verdict.lost.append(f"turn {key}: neither in the buffer nor covered")
            elif covered and turn.turn_id in held:
                verdict.duplicated.append(f"turn {key}: in the buffer and covered")
            elif covered == (turn == told[-1]):
                verdict.differing.append(f"turn {key}: {'covered' if covered else 'in the buffer'}, settled")
            if turn.turn_id in held and held[turn.turn_id] != turn:
                verdict.differing.append(f"turn {key}: in the buffer it is not as it was told")
        strangers = held.keys() - {turn.turn_id for turn in told}
        verdict.duplicated.extend(f"turn {turn_id} of {session}: never told" for turn_id in strangers)


def _key(turn: Turn) -> tuple[str, ...]:
    return (turn.app, turn.user_id, turn.session_id, turn.turn_id)


def _differences(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    return "; ".join(_each_difference(one, other))


def _each_difference(one: tuple[Any, ...], other: tuple[Any, ...]) -> Iterator[str]:
    for position, (mine, calm) in enumerate(zip(one, other, strict=True)):
        if mine != calm:
            yield f"value {position} is {str(mine)[:_SHOWN]!r}, calm it is {str(calm)[:_SHOWN]!r}"
