"""Whatever Pub/Sub may deliver to any subscription ends handled, parked as it came, or refused for later."""

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lamina.envelope import encode
from lamina.events import PAYLOADS
from lamina.model import Turn
from tests.abuse.stack import SUBSCRIPTIONS, Stack
from tests.strategies import json_values, texts

AT = "2026-01-05T10:00:00Z"
TURN = {"app": "shop", "user_id": "pushed", "session_id": "s", "turn_id": "t", "occurred_at": AT}
SETTINGS = settings(
    max_examples=int(os.environ.get("LAMINA_ABUSE_EXAMPLES", "100")),
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    phases=[Phase.generate],
)
MOMENTS = [
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "now",
    "",
    "1",
    AT,
    "2026-01-05T10:00:00",
]
# fmt: off
names = st.sampled_from([
    "ce-specversion", "ce-id", "ce-type", "ce-source", "ce-time", "ce-dataschema", "ce-subject",
    "content-type", "lamina-first-seen", "lamina-message-id", "lamina-failures", "lamina-parked-at",
    "lamina-error", "CloudPubSubDeadLetterSourceTopicPublishTime", "googclient_traceparent", "traceparent",
    "own",
])
# fmt: on
values = st.one_of(
    st.sampled_from(["1.0", "0.3", *PAYLOADS, "application/json", "application/cloudevents+json", *MOMENTS]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
attributes = st.dictionaries(names, values, max_size=6)
near_turns: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(
        [*TURN, "events", "user", "assistant", "turn", "project_id", "due_at", "before", "batch"]
    ),
    st.one_of(json_values, st.sampled_from([AT, "shop", [{}], *MOMENTS])),
    max_size=8,
)
bodies = st.one_of(
    st.binary(max_size=60),
    near_turns.map(lambda value: json.dumps(value).encode()),
    near_turns.map(lambda value: json.dumps({"turn": {**TURN, **value}}).encode()),
    json_values.map(lambda value: json.dumps({"specversion": "1.0", "id": value, "data": value}).encode()),
)


@pytest.mark.parametrize("subscription", SUBSCRIPTIONS)
def test_any_message_is_handled_or_parked_exactly_as_it_came(stack: Stack, subscription: str) -> None:
    dead = f"{subscription}.dead"
    stack.taken(dead)

    @SETTINGS
    @given(bodies, attributes)
    def push(data: bytes, sent: dict[str, str]) -> None:
        answer = stack.push(subscription, data, sent)
        assert answer.status_code == 204, answer.text
        if stack.messages()[dead]:
            (letter,) = stack.taken(dead)
            assert letter.data == data
            kept = {name: text for name, text in sent.items() if not name.startswith(("lamina-", "CloudPub"))}
            assert dict(letter.attributes).items() >= kept.items()
            assert letter.attributes["lamina-reason"]

    push()
    stack.still_serves()


@pytest.mark.parametrize("subscription", SUBSCRIPTIONS)
def test_any_bytes_in_place_of_a_push_are_acknowledged_only_where_they_are_kept(
    stack: Stack, subscription: str
) -> None:
    dead = f"{subscription}.dead"
    client = stack.http[SUBSCRIPTIONS[subscription]]
    stack.taken(dead)
    wrapper = st.dictionaries(
        st.sampled_from(["message", "subscription", "deliveryAttempt", "data", "attributes", "messageId"]),
        st.one_of(json_values, st.dictionaries(texts, json_values, max_size=2)),
        max_size=4,
    ).map(lambda value: json.dumps({"message": {}, "subscription": "s", **value}).encode())
    headers = st.dictionaries(
        st.sampled_from(["ce-specversion", "ce-id", "content-type", "x-goog-pubsub-publish-time"]),
        st.one_of(
            st.sampled_from(["1.0", "application/cloudevents+json", *MOMENTS]), st.text("abc%/", max_size=5)
        ),
        max_size=3,
    )

    @SETTINGS
    @given(st.one_of(wrapper, bodies), headers)
    def push(data: bytes, sent: dict[str, str]) -> None:
        answer = client.post(f"/push/{subscription}", content=data, headers=sent)
        assert answer.status_code == 204, answer.text
        assert len(stack.taken(dead)) in (0, 1)

    push()
    stack.still_serves()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "name", ["lamina-first-seen", "ce-time", "CloudPubSubDeadLetterSourceTopicPublishTime"]
)
def test_a_time_that_no_clock_shows_is_no_reason_to_fail_for_ever(
    stack: Stack, name: str, moment: str
) -> None:
    """Else the edge would fail even while it parks, on every attempt, and nothing would be kept."""
    stack.taken("turn-ingest.dead")
    answer = stack.push("turn-ingest", b"{}", {name: moment})
    assert answer.status_code == 204
    (letter,) = stack.taken("turn-ingest.dead")
    assert letter.data == b"{}"


@pytest.mark.parametrize(
    "extra", [{"message": {"data": "***"}}, {"message": {"data": "e30="}, "subscription": "x"}]
)
def test_a_turn_with_fields_named_as_in_a_wrapped_push_stays_a_turn(
    stack: Stack, extra: dict[str, Any]
) -> None:
    turn = {**TURN, "session_id": f"like-a-push-{len(extra)}", **extra, "subscription": "x", "user": "hello"}
    assert stack.post("/v1/turns", turn).status_code == 200
    message = stack.taken("turn.recorded")[-1]
    assert json.loads(message.data)["turn"].items() >= extra.items()


def test_the_same_bytes_wrapped_or_not_are_one_turn(stack: Stack) -> None:
    message = encode(PAYLOADS["lamina.turn.published.v1"].model_validate({"turn": {**TURN, "user": "once"}}))
    assert stack.push("turn-ingest", message.data, message.attributes).status_code == 204
    client = stack.http["turn-ingest"]
    bare = client.post("/push/turn-ingest", content=message.data, headers=message.attributes)
    posted = client.post("/v1/turns", content=message.data, headers=message.attributes)
    assert (bare.status_code, posted.json()["duplicate"]) == (204, True)
    assert Turn.model_validate(json.loads(message.data)["turn"]).turn_id == posted.json()["turn_id"]
