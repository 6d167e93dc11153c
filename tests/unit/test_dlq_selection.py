"""Which dead letters an operator means, and how they are told apart, grouped, written down and shown."""

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.dead_letters import EXHAUSTED, Failure, Owner, parked
from lamina.envelope import encode
from lamina.errors import ConfigurationError, NotFound
from lamina.events import TurnRecorded
from lamina.ports import Message
from lamina.pubsub.letter import DeadLetter
from lamina_services.cli.dlq import records
from lamina_services.cli.dlq.printing import ago, pretty, visible
from lamina_services.cli.dlq.selection import Selection, groups, moment, named
from tests.builders import a_turn

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def a_letter(
    number: int = 1,
    *,
    user: str = "ana",
    subscription: str = "summarizer",
    error: str = "ModelRefused",
    reason: str = "Blocked: SAFETY",
    parked_at: datetime | None = NOW,
    failures: int = 1,
    data: bytes | None = None,
) -> DeadLetter:
    message = encode(TurnRecorded(turn=a_turn(user, turn_id=f"t{number}")))
    if data is not None:
        message = Message(data, {}, "")
    failure = Failure(error, reason, subscription, parked_at=parked_at, failures=failures)
    return DeadLetter.of(subscription, parked(message, failure), f"{1000 + number}", NOW, subscription)


def test_every_filter_alone_and_all_together() -> None:
    letter = a_letter()
    fitting: dict[str, Any] = {
        "subscriptions": ("summarizer",),
        "reason": "modelrefused",
        "user": "ana",
        "app": letter.owner.app,
        "since": NOW,
        "until": NOW + timedelta(seconds=1),
    }
    other: dict[str, Any] = {
        "subscriptions": ("compactor",),
        "reason": "Refused",
        "user": "bo",
        "app": "elsewhere",
        "since": NOW + timedelta(seconds=1),
        "until": NOW,
    }
    assert Selection(**fitting).matches(letter)
    for name, value in fitting.items():
        assert Selection(**{name: value}).matches(letter), name
        assert not Selection(**{**fitting, name: other[name]}).matches(letter), name


def test_a_reason_is_the_whole_class_of_the_error_or_a_piece_of_its_words() -> None:
    letter = a_letter(error="ModelRefused", reason="blocked: safety")
    assert [Selection(reason=text).matches(letter) for text in ("MODELREFUSED", "Safety", "Model")] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("data", [b"", b"{oops", b"\xff\x00", b"[1]", b'{"user_id": 7}', b"[" * 100_000])
def test_data_that_cannot_be_read_belongs_to_nobody_and_can_be_selected(data: bytes) -> None:
    letter = a_letter(data=data, error="InvalidEvent", reason="body: is not JSON")
    assert letter.owner == Owner()
    assert Selection(user="").matches(letter)
    assert Selection(reason="not json", subscriptions=("summarizer",), since=NOW).matches(letter)
    assert not Selection(user="ana").matches(letter)
    assert not Selection(user="").matches(a_letter())


@pytest.mark.parametrize(
    "value",
    [
        {"user_id": "ana", "session_id": "s1"},
        {"turn": {"user_id": "ana", "session_id": "s1"}},
        {"turn": {"user_id": "ana", "session_id": "s1"}, "user_id": "mallory"},
        {"specversion": "1.0", "data": {"turn": {"user_id": "ana", "session_id": "s1"}}},
        {"user_id": "ana", "session_id": "s1", "turn": {"user_id": "mallory"}},
    ],
)
def test_the_owner_is_read_from_each_form_as_the_services_read_it(value: Any) -> None:
    owner = Owner.of(json.dumps(value).encode())
    assert (owner.user_id, owner.session_id) == ("ana", "s1")


def test_an_id_names_an_event_by_its_beginning_and_each_subscriber_that_failed_at_it() -> None:
    first, second, other = a_letter(1), a_letter(1, subscription="entity-extractor"), a_letter(2)
    every = [first, replace(second, message_id="2001"), other]
    assert named(every, first.event_id) == every[:2]
    assert named(every, first.event_id[:13]) == every[:2]
    assert named(every, "2001") == [every[1]]
    with pytest.raises(NotFound, match="'nobody'"):
        named(every, "nobody")
    with pytest.raises(ConfigurationError, match="begins the ids of 2 dead letters"):
        named(every, "100")


def test_a_whole_id_wins_over_those_that_begin_with_it() -> None:
    short, long = replace(a_letter(1), message_id="7"), replace(a_letter(2), message_id="71")
    assert named([short, long], "7") == [short]


def test_ids_and_filters_both_apply() -> None:
    first, second = a_letter(1), a_letter(2, user="bo")
    assert Selection(ids=(first.event_id,)).pick([second, first]) == [first]
    with pytest.raises(NotFound):
        Selection(ids=(first.event_id,), user="bo").pick([second, first])


def test_the_longest_dead_come_first() -> None:
    letters = [a_letter(n, parked_at=NOW - timedelta(hours=n)) for n in (1, 3, 2)]
    assert [letter.message_id for letter in Selection().pick(letters)] == ["1003", "1002", "1001"]


def test_a_dead_letter_that_pubsub_moved_is_dated_by_the_broker() -> None:
    plain = encode(TurnRecorded(turn=a_turn("ana")))
    letter = DeadLetter.of("summarizer", plain, "1", NOW, "summarizer")
    assert (letter.failure.error, letter.parked_at) == (EXHAUSTED, NOW)
    assert Selection(since=NOW, reason=EXHAUSTED.lower()).matches(letter)


def test_groups_count_by_subscription_and_error_with_the_latest_reason() -> None:
    letters = [
        a_letter(1, parked_at=NOW, reason="new", failures=3),
        a_letter(2, parked_at=(NOW - timedelta(hours=1)).astimezone(), reason="old"),
        a_letter(3, error="InvalidEvent"),
        a_letter(4, subscription="compactor"),
    ]
    found = groups(letters)
    assert [(group.subscription, group.error, group.count) for group in found] == [
        ("compactor", "ModelRefused", 1),
        ("summarizer", "InvalidEvent", 1),
        ("summarizer", "ModelRefused", 2),
    ]
    assert (found[2].sample, found[2].oldest, found[2].failures) == ("new", NOW - timedelta(hours=1), 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW - timedelta(hours=2)),
        ("3d", NOW - timedelta(days=3)),
        ("90s", NOW - timedelta(seconds=90)),
        ("2026-02-28T10:00Z", datetime(2026, 2, 28, 10, tzinfo=UTC)),
        ("2026-02-28T10:00+02:00", datetime(2026, 2, 28, 8, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_time_or_how_long_ago(text: str, expected: datetime) -> None:
    assert moment(text, NOW, "--since") == expected


@pytest.mark.parametrize("text", ["yesterday", "2x", "h", "999999w", "-2h", "٣h"])
def test_anything_else_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--until: .* is no date or time"):
        moment(text, NOW, "--until")


@given(
    data=st.binary(max_size=200),
    attributes=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"))
    ),
    key=st.text(st.characters(codec="utf-8")),
)
def test_what_is_written_down_is_read_back_as_it_was(
    data: bytes, attributes: dict[str, str], key: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    letter = DeadLetter.of("summarizer", Message(data, attributes, key), "17", NOW, "summarizer")
    file = tmp_path_factory.mktemp("records") / "letters.jsonl"
    records.write(file, [letter, letter])
    assert records.read(file) == [letter, letter]


def test_a_record_holds_its_data_decoded_where_that_is_json(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    records.write(file, [a_letter(1), a_letter(2, data=b"\xff")])
    first, second = map(json.loads, file.read_bytes().splitlines())
    assert first["json"]["turn"]["user_id"] == first["user_id"] == "ana"
    assert "json" not in second
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_exists_is_never_touched(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text("mine", "utf-8")
    with pytest.raises(ConfigurationError, match=r"letters\.jsonl: File exists"):
        records.write(file, [a_letter()])
    assert file.read_text("utf-8") == "mine"


def test_a_file_that_cannot_be_finished_is_not_left_behind(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"

    def letters() -> Any:
        yield a_letter()
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigurationError, match="No space left"):
        records.write(file, letters())
    assert not file.exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{oops", "line 2: is no dead letter"),
        ("[1]", "line 2: is no dead letter"),
        ("{}", "line 2: 'subscription' is missing or unknown"),
        (
            '{"subscription": "nobody", "message_id": "1", "attributes": {}, "data": ""}',
            "'nobody' is missing or unknown",
        ),
        (
            '{"subscription": "compactor", "message_id": "1", "attributes": {}, "data": "%"}',
            "is no dead letter",
        ),
        (
            '{"subscription": "compactor", "message_id": "1", "attributes": [], "data": ""}',
            "is no dead letter",
        ),
    ],
)
def test_a_line_that_is_no_dead_letter_is_named(line: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    records.write(file, [a_letter()])
    file.write_text(file.read_text("utf-8") + line + "\n", "utf-8")
    with pytest.raises(ConfigurationError) as refused:
        records.read(file)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"a":"\\u001b[31m"}', '{\n  "a": "\\u001b[31m"\n}'),
        (b"\x1b[2J\x9b", None),
        ("\x9b31m \u202e über 日本".encode(), "\\x9b31m \\u202e über 日本"),
        (b"{oops", "{oops"),
        (b"", "(none)"),
    ],
)
def test_data_is_shown_without_steering_the_terminal(data: bytes, shown: str | None) -> None:
    text = pretty(data)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert shown is None or text == shown


def test_binary_data_is_shown_by_its_bytes() -> None:
    text = pretty(bytes(range(256)) * 8)
    assert text.startswith("2,048 bytes that are no text\n00000000  00 01 02")
    assert text.endswith("… 1,024 more; export gives all")


@given(st.text())
def test_whatever_is_shown_is_printable(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in visible(text))


def test_an_age_is_told_in_its_largest_unit() -> None:
    ages = [timedelta(seconds=5), timedelta(minutes=119), timedelta(hours=47), timedelta(days=6)]
    assert [ago(NOW - age, NOW) for age in ages] == ["5s", "119m", "47h", "6d"]


def test_one_event_id_of_two_users_is_no_single_event() -> None:
    ana, bo = (a_letter(number, user=user) for number, user in enumerate(("ana", "bo"), start=1))
    same = replace(bo, message=replace(bo.message, attributes=ana.message.attributes))
    with pytest.raises(ConfigurationError, match=r"of ana.*of bo"):
        named([ana, same], ana.event_id)
