"""The filter language: on a subscription, and as a parser of its own."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina_services.local.pubsub.faults import InvalidArgument
from lamina_services.local.pubsub.filters import parse_filter
from tests.contract.pubsub_servers import QUIET, World, server, world

__all__ = ["server", "world"]

pytestmark = QUIET

KEYS = st.text("abc-_19", min_size=1, max_size=6).filter(lambda key: key[0] != "-")
VALUES = st.text(max_size=8).filter(lambda text: not any(0xD800 <= ord(letter) < 0xE000 for letter in text))
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=4)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def test_only_messages_that_match_the_filter_are_delivered(world: World) -> None:
    topic = world.new_topic()
    name = world.new_subscription(topic, filter='attributes.kind = "turn" AND NOT attributes:test')
    world.publish(topic, b"other", kind="other")
    world.publish(topic, b"none")
    world.publish(topic, b"test", kind="turn", test="1")
    world.publish(topic, b"wanted", kind="turn")
    assert [each.message.data for each in world.pull(name, 1)] == [b"wanted"]
    assert world.pull_now(name) == []


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("attributes:a", {"a": ""}, {"b": ""}),
        ('attributes:"a b"', {"a b": "1"}, {"a": "1"}),
        ('attributes.a = "x"', {"a": "x"}, {"a": "X"}),
        ('attributes.a="x"', {"a": "x"}, {}),
        ('attributes."a.b/c" = "x"', {"a.b/c": "x"}, {"a": "x"}),
        ('attributes.a != "x"', {"a": "y"}, {"a": "x"}),
        ('attributes.a != "x"', {}, {"a": "x"}),
        ('hasPrefix(attributes.a, "x")', {"a": "xy"}, {"a": "yx"}),
        ('hasPrefix(attributes.a, "")', {"a": "y"}, {}),
        ("NOT attributes:a", {}, {"a": ""}),
        ("-attributes:a", {}, {"a": ""}),
        ("attributes:a AND attributes:b AND attributes:c", {"a": "", "b": "", "c": ""}, {"a": "", "b": ""}),
        ("attributes:a OR attributes:b", {"b": ""}, {"c": ""}),
        ("attributes:a AND (attributes:b OR attributes:c)", {"a": "", "c": ""}, {"b": ""}),
        ("NOT (attributes:a OR attributes:b)", {}, {"b": ""}),
        ("attributes:a AND NOT attributes:b", {"a": ""}, {"a": "", "b": ""}),
        (r'attributes.a = "\"\\\n\x41\u00e9\101"', {"a": '"\\\nAéA'}, {"a": ""}),
        ("attributes:AND", {"AND": ""}, {}),
        ('attributes:attributes OR attributes.NOT = "x"', {"attributes": ""}, {}),
        ("  attributes : a  ", {"a": ""}, {}),
        ("", {}, None),
    ],
)
def test_a_filter_tells_messages_apart(
    text: str, matching: dict[str, str], other: dict[str, str] | None
) -> None:
    matches = parse_filter(text)
    assert matches(matching)
    assert other is None or not matches(other)


@pytest.mark.parametrize(
    "text",
    [
        "attributes",
        "attributes:",
        "attributes.a",
        "attributes.a =",
        "attributes.a = x",
        "attributes.a = 'x'",
        'attributes.a = "x',
        'attributes.a > "x"',
        'attribute.a = "x"',
        "attributes:a attributes:b",
        "attributes:a AND",
        "AND attributes:a",
        "attributes:a and attributes:b",
        "attributes:a AND attributes:b OR attributes:c",
        "attributes:a OR attributes:b AND attributes:c",
        "(attributes:a",
        "attributes:a)",
        "NOT NOT attributes:a",
        'hasPrefix(attributes.a "x")',
        "hasPrefix(attributes:a)",
        r'attributes.a = "\q"',
        "(" * 256,
        'attributes.a = "' + "x" * 250 + '"',
    ],
)
def test_a_malformed_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_filter(text)


@given(KEYS, VALUES, ATTRIBUTES)
def test_equality_compares_the_value_exactly(key: str, value: str, attributes: dict[str, str]) -> None:
    matches = parse_filter(f"attributes.{key} = {quoted(value)}")
    assert matches(attributes) == (attributes.get(key) == value)
    assert matches({**attributes, key: value})


@given(KEYS, VALUES, ATTRIBUTES)
def test_unequal_is_the_opposite_of_equal(key: str, value: str, attributes: dict[str, str]) -> None:
    equal = parse_filter(f"attributes.{key} = {quoted(value)}")
    unequal = parse_filter(f"attributes.{key} != {quoted(value)}")
    assert equal(attributes) != unequal(attributes)


@given(KEYS, VALUES, ATTRIBUTES)
def test_a_prefix_matches_what_starts_with_it(key: str, value: str, attributes: dict[str, str]) -> None:
    matches = parse_filter(f"hasPrefix(attributes.{key}, {quoted(value)})")
    assert matches(attributes) == (key in attributes and attributes[key].startswith(value))


@given(st.lists(KEYS, min_size=2, max_size=5), ATTRIBUTES)
def test_and_or_and_not_combine_as_in_logic(keys: list[str], attributes: dict[str, str]) -> None:
    tests = [f"attributes:{key}" for key in keys]
    every, some = " AND ".join(tests), " OR ".join(tests)
    assert parse_filter(every)(attributes) == all(key in attributes for key in keys)
    assert parse_filter(some)(attributes) == any(key in attributes for key in keys)
    negated = parse_filter(" AND ".join(f"NOT {test}" for test in tests))
    assert parse_filter(f"NOT ({some})")(attributes) == negated(attributes)


@given(st.text(max_size=40) | st.text('atributes:.="()NOTAND -\\', max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(InvalidArgument):
        parse_filter(text)({})
