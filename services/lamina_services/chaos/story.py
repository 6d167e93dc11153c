"""What is told: users with sessions that follow one another, statements that supersede others, and poison."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from lamina import strict_json
from lamina.envelope import encode
from lamina.events import TurnPublished
from lamina.model import SessionKey, Turn, derived_id
from lamina.ports import Message
from lamina_services.chaos import model
from lamina_services.chaos.phrases import answer_to, spoken, tool_call

APPS = ("chaos-shop", "chaos-desk")
POISON = "chaos-poison"
"""The attribute by which a message that no decoder can read is known again."""

_BEGAN = datetime(2026, 2, 2, 8, tzinfo=UTC)
_SESSIONS_OF_A_USER = 8
_LONGEST_CHAIN = 2
_IN_THE_MODEL = (
    (model.REFUSED, "entity-extractor", "ModelRefused", 3),
    (model.UNREADABLE, "entity-extractor", "ModelAnswerInvalid", 2),
    (model.UNSTORABLE, "entity-extractor", "ConstraintViolated", 2),
    (model.UNSUMMARISED, "summarizer", "ModelRefused", 3),
)
"""(marker, who parks it, with which error, how many)."""
UNLUCKY_TURNS = 4
"""So many turns become dead letters that only had bad luck."""
FEWEST_SESSIONS = sum(count for *_, count in _IN_THE_MODEL)
"""A session holds one poisoned turn at most."""
FEWEST_TURNS = 3 * FEWEST_SESSIONS


@dataclass(frozen=True)
class Poison:
    """Something that must end on a dead-letter topic, and nowhere else."""

    key: str
    """The turn's id, or what the attribute POISON says."""
    subscription: str
    error: str


@dataclass(frozen=True)
class Story:
    """Turns, in waves: a session is told only after the one that it follows."""

    waves: tuple[tuple[Turn, ...], ...]
    """Each in order of (occurred_at, turn_id)."""
    unreadable: tuple[Message, ...]
    """Messages that are no turns."""
    poison: frozenset[Poison]

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        """All of them."""
        return tuple(turn for wave in self.waves for turn in wave)


@dataclass(frozen=True)
class _Session:
    key: SessionKey
    project: str | None
    previous: str | None
    depth: int
    began: datetime
    language: str


def told(seed: int, turns: int, sessions: int) -> Story:
    """A story of so many turns over so many sessions; a seed always gives the same one."""
    chance = random.Random(f"story {seed}")  # noqa: S311 - reproducible data, not secrets
    made = list(_sessions(chance, sessions))
    sizes = _sizes(chance, turns, sessions)
    by_session = [list(_turns(chance, seed, each, size)) for each, size in zip(made, sizes, strict=True)]
    poison = frozenset(_poison_turns(chance, by_session))
    first_wave = [said for session, said in zip(made, by_session, strict=True) if session.depth == 0]
    _mark_unlucky(chance, first_wave, {each.key for each in poison})
    unreadable = _unreadable(by_session[0][0])
    waves: list[list[Turn]] = [[] for _ in range(_LONGEST_CHAIN + 1)]
    for session, said in zip(made, by_session, strict=True):
        waves[session.depth].extend(said)
    return Story(
        waves=tuple(tuple(sorted(wave, key=lambda turn: turn.order)) for wave in waves if wave),
        unreadable=unreadable,
        poison=poison
        | {Poison(each.attributes[POISON], "turn-ingest", "InvalidEvent") for each in unreadable},
    )


def _sessions(chance: random.Random, count: int) -> Iterator[_Session]:
    last: dict[int, _Session] = {}
    users = max(2, count // _SESSIONS_OF_A_USER)
    for number in range(count):
        user = number % users
        before = last.get(user)
        follows = before is not None and before.depth < _LONGEST_CHAIN and chance.random() < 0.5
        project = chance.choice(("atlas", "borealis", None))
        last[user] = _Session(
            key=SessionKey(
                app=APPS[user % len(APPS)], user_id=f"user-{user // 2:02}", session_id=f"s{number:03}"
            ),
            # One that follows stays in its project more often than not.
            project=before.project if follows and before and chance.random() < 0.7 else project,
            previous=before.key.session_id if follows and before else None,
            depth=before.depth + 1 if follows and before else 0,
            # Sessions of a user overlap: what is said in one supersedes what another said, to and fro.
            began=_BEGAN + timedelta(minutes=chance.randrange(14 * 24 * 60)),
            language=chance.choice(("en", "en", "es", "pt")),
        )
        yield last[user]


def _sizes(chance: random.Random, turns: int, sessions: int) -> list[int]:
    """How many turns each session has: some are short, some long, none is empty."""
    sizes = [3] * sessions
    weights = [chance.uniform(0.3, 2.0) for _ in range(sessions)]
    for index in chance.choices(range(sessions), weights, k=turns - 3 * sessions):
        sizes[index] += 1
    return sizes


def _turns(chance: random.Random, seed: int, session: _Session, count: int) -> Iterator[Turn]:
    at = session.began
    short_ids = chance.random() < 0.3  # unique in their session only
    for number in range(count):
        at += timedelta(seconds=chance.randrange(20, 6 * 3600))
        name = (session.key.user_id, session.key.session_id, str(number))
        yield Turn.model_validate(
            {
                **session.key.model_dump(),
                **({"project_id": session.project} if session.project else {}),
                **({"previous_session_id": session.previous} if session.previous else {}),
                "turn_id": f"t{number:03}" if short_ids else str(derived_id("chaos", str(seed), *name)),
                "occurred_at": at,
                "events": list(_events(chance, session.language)),
                **({"a_later_field": {"kept": [None, 1e-300]}} if chance.random() < 0.1 else {}),
            }
        )


def _events(chance: random.Random, language: str) -> Iterator[dict[str, Any]]:
    yield {"author": "user", "content": {"role": "user", "parts": [{"text": spoken(chance, language)}]}}
    if chance.random() < 0.3:
        yield from tool_call(chance)
    text = answer_to(chance, language)
    yield {"author": "coder", "content": {"role": "model", "parts": [{"text": text}]}, "partial": None}


def _poison_turns(chance: random.Random, by_session: Sequence[list[Turn]]) -> Iterator[Poison]:
    """Mark turns, each in a session of its own and never its last: that one stays in the buffer."""
    marks = [(marker, by, error) for marker, by, error, count in _IN_THE_MODEL for _ in range(count)]
    chosen = chance.sample(range(len(by_session)), len(marks))
    for index, (marker, subscription, error) in zip(chosen, marks, strict=True):
        said = by_session[index]
        position = chance.randrange(len(said) - 1)
        said[position] = _marked(said[position], marker)
        yield Poison(key_of(said[position]), subscription, error)


def _mark_unlucky(chance: random.Random, by_session: Sequence[list[Turn]], poison: set[str]) -> None:
    sound = [
        (said, position)
        for said in by_session
        for position, turn in enumerate(said)
        if key_of(turn) not in poison
    ]
    for said, position in chance.sample(sound, UNLUCKY_TURNS):
        said[position] = _marked(said[position], model.UNLUCKY)


def _marked(turn: Turn, marker: str) -> Turn:
    """The turn, its user's message led by the marker."""
    events = [event.root for event in turn.events]
    part = {"text": f"{marker} {events[0]['content']['parts'][0]['text']}"}
    events[0] = {"author": "user", "content": {"role": "user", "parts": [part]}}
    return Turn.model_validate({**turn.to_json(), "events": events})


def key_of(turn: Turn) -> str:
    """Names a turn, over all users and sessions."""
    return "/".join((turn.app, turn.user_id, turn.session_id, turn.turn_id))


def _unreadable(turn: Turn) -> tuple[Message, ...]:
    """Two of each kind that turn-ingest must refuse."""
    good = encode(TurnPublished(turn=turn))
    deep = good.data.replace(b'{"turn":{', b'{"turn":{"deep":' + b'{"x":' * 400 + b"1" + b"}" * 400 + b",", 1)
    broken = strict_json.dumps({"turn": {**turn.to_json(), "events": [{"content": {"parts": "no list"}}]}})
    forms = (
        (b"{ this is not JSON", good.attributes),
        (b'{"turn":{"app":"chaos-shop","user_id":"user-00"}}', good.attributes),
        (good.data, {**good.attributes, "ce-type": "com.example.unknown"}),
        (deep, good.attributes),
        (broken, good.attributes),
    )
    return tuple(
        Message(data, {**attributes, "ce-id": f"poison-{kind}-{copy}", POISON: f"unreadable-{kind}-{copy}"})
        for kind, (data, attributes) in enumerate(forms)
        for copy in range(2)
    )
