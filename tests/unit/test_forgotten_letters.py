"""Whether a dead letter holds something forgotten is told from whatever can be read of it."""

import json
from datetime import datetime, timedelta

import pytest

from lamina.envelope import encode
from lamina.events import TurnPublished, TurnRecorded
from lamina.forgetting import Tombstone, Tombstones
from lamina.ports import Message
from lamina.pubsub.letter import DeadLetter
from lamina_services.forgetting.letters import is_forgotten
from tests.builders import APP, BEGAN, a_turn

AT = BEGAN + timedelta(minutes=2)
USER = Tombstones(APP, "ana", (Tombstone(scope="user", forgotten_at=AT),), 1)
SESSION = Tombstones(APP, "ana", (Tombstone(scope="session", owner="s1", forgotten_at=AT),), 1)
PROJECT = Tombstones(APP, "ana", (Tombstone(scope="project", owner="shop", forgotten_at=AT),), 1)
EVERY = pytest.mark.parametrize("stones", [USER, SESSION, PROJECT], ids=["user", "session", "project"])


def a_letter(data: bytes, published: datetime | None = AT) -> DeadLetter:
    return DeadLetter.of("summarizer", Message(data), "1", published, "summarizer")


@EVERY
@pytest.mark.parametrize("payload", [TurnPublished, TurnRecorded])
def test_a_turn_is_judged_by_when_it_occurred(
    stones: Tombstones, payload: type[TurnPublished | TurnRecorded]
) -> None:
    for number, forgotten in ((1, True), (2, True), (3, False)):
        turn = a_turn("ana", number, project_id="shop")
        assert is_forgotten(a_letter(encode(payload(turn=turn)).data), stones) is forgotten


@EVERY
def test_another_users_turn_is_not_meant(stones: Tombstones) -> None:
    data = encode(TurnRecorded(turn=a_turn("bo", 1, project_id="shop"))).data
    assert not is_forgotten(a_letter(data), stones)


@pytest.mark.parametrize("stones", [SESSION, PROJECT], ids=["session", "project"])
def test_a_turn_of_elsewhere_is_not_meant(stones: Tombstones) -> None:
    data = encode(TurnRecorded(turn=a_turn("ana", 1, session="s2", project_id="blog"))).data
    assert not is_forgotten(a_letter(data), stones)


@EVERY
def test_a_broken_turn_is_judged_by_when_it_was_seen(stones: Tombstones) -> None:
    names = {"app": APP, "user_id": "ana", "session_id": "s1", "project_id": "shop", "events": "?"}
    for broken in (names, {"turn": names}, {"data": {"turn": names}}, {**names, "occurred_at": "soon"}):
        data = json.dumps(broken).encode()
        assert is_forgotten(a_letter(data), stones)
        assert not is_forgotten(a_letter(data, AT + timedelta(seconds=1)), stones)
        assert is_forgotten(a_letter(data, None), stones), "of unknown date"


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000])
def test_what_names_nobody_is_nobodys(data: bytes) -> None:
    assert not is_forgotten(a_letter(data), USER)
