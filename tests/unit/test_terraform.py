"""What Terraform would create, as far as it can be told without a cloud."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import hcl2
import pytest

from lamina.events import CompactionDue
from lamina.postgres.migrate import ROLES
from lamina.settings import Settings, variable_of
from lamina.topology import load_topology

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra/terraform"
TOPOLOGY = load_topology()
DEAD_LETTERS = {each.dead_letter_topic for each in TOPOLOGY.subscriptions}
_TOPOLOGY_JSON = "shared/lamina/topology.json"
NOT_SETTINGS = {"FUNCTION_TARGET", "FUNCTION_SOURCE", "LAMINA_GRANT"}

needs_terraform = pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")


def text() -> str:
    """All of it, without comments."""
    lines = (line for path in sorted(FOLDER.glob("*.tf")) for line in path.read_text("utf-8").splitlines())
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


@cache
def blocks() -> list[dict[str, Any]]:
    """Each parsed file."""
    bare = hcl2.loads  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - a bare dict
    parse = cast("Callable[[str], dict[str, Any]]", bare)
    return [parse(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.tf"))]


@cache
def resources() -> dict[str, dict[str, Any]]:
    """The body of each resource by its address."""
    return {
        f"{_bare(kind)}.{_bare(name)}": body
        for file in blocks()
        for block in file.get("resource", [])
        for kind, named in block.items()
        if not kind.startswith("__")
        for name, body in named.items()
        if not name.startswith("__")
    }


def _bare(label: str) -> str:
    return label.strip('"')


def _declared(kind: str) -> set[str]:
    names = (name for file in blocks() for block in file.get(kind, []) for name in block)
    return {_bare(name) for name in names if not name.startswith("__")}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The locals of topology.tf as Terraform works them out: they need no provider, so it runs offline."""
    root = tmp_path_factory.mktemp("terraform")
    for path in (
        "infra/terraform/topology.tf",
        "infra/terraform/variables.tf",
        "shared/lamina/topology.json",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, root / path)
    names = (
        "subscriptions",
        "recordings",
        "topics",
        "dead_letters",
        "publishers",
        "agent_topics",
        "database_roles",
    )
    wanted = ", ".join(f"{name} = local.{name}" for name in (*names, "timeout_s", "tick"))
    answer = subprocess.run(
        ["terraform", "console", "-var=project=p", "-var=region=r", "-var=image=i"],  # noqa: S607 - of the PATH
        input=f"jsonencode({{{wanted}}})",
        cwd=root / "infra/terraform",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(json.loads(answer.stdout))


@needs_terraform
def test_the_files_are_formatted() -> None:
    command = ["terraform", "fmt", "-check", "-recursive", str(ROOT / "infra")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - as above


def test_no_topic_is_known_by_name() -> None:
    names = {
        *TOPOLOGY.topics,
        *DEAD_LETTERS,
        *(each.name for each in TOPOLOGY.subscriptions),
        *TOPOLOGY.services,
    }
    quoted = set(re.findall(r'"([^"$]*)"', text()))
    assert not names & quoted


def test_what_is_referred_to_is_declared() -> None:
    everything = text()
    used = set(re.findall(r"(?<![\w.])((?:google|random)_\w+\.\w+)", everything))
    assert used <= resources().keys()
    assert set(re.findall(r"(?<![\w.])var\.(\w+)", everything)) == _declared("variable")
    assert set(re.findall(r"(?<![\w.])local\.(\w+)", everything)) == _declared("locals")


def test_every_variable_of_a_service_is_a_setting() -> None:
    used = set(re.findall(r"\b((?:LAMINA|GOOGLE|GEMINI|FUNCTION)_[A-Z_]+)\b(?= +=|\")", text()))
    settings = {variable_of(name) for name in Settings.model_fields}
    assert {"LAMINA_DATABASE_URL", "LAMINA_VALKEY_IAM", "GOOGLE_CLOUD_PROJECT"} <= used
    assert used <= settings | NOT_SETTINGS


def test_each_push_is_wrapped_signed_filtered_and_has_dead_letters() -> None:
    push = resources()["google_pubsub_subscription.push"]
    assert push["for_each"] == "${local.subscriptions}"
    assert push["filter"] == "${each.value.filter}"
    assert push["ack_deadline_seconds"] == "${each.value.ack_deadline_s}"
    [config], [policy], [retry] = push["push_config"], push["dead_letter_policy"], push["retry_policy"]
    assert "no_wrapper" not in config  # only a wrapped push tells its attempt
    assert "google_service_account.invoker" in config["oidc_token"][0]["service_account_email"]
    assert policy["dead_letter_topic"] == "${google_pubsub_topic.topic[each.value.dead_letter_topic].id}"
    assert policy["max_delivery_attempts"] == "${local.delivery.max_delivery_attempts}"
    assert "minimum_backoff_s" in retry["minimum_backoff"]
    assert "maximum_backoff_s" in retry["maximum_backoff"]


def test_no_subscription_expires() -> None:
    subscriptions = [
        body for name, body in resources().items() if name.startswith("google_pubsub_subscription.")
    ]
    assert [_bare(each["expiration_policy"][0]["ttl"]) for each in subscriptions] == [""] * 3


def test_each_dead_letter_topic_has_a_pull_subscription() -> None:
    pull = resources()["google_pubsub_subscription.dead_letter"]
    assert pull["for_each"] == "${local.dead_letters}"
    assert pull["topic"] == "${google_pubsub_topic.topic[each.value].id}"
    assert "push_config" not in pull


def test_each_dead_letter_is_told_to_the_recorder_by_a_push_that_has_no_dead_letters_itself() -> None:
    recording = resources()["google_pubsub_subscription.recording"]
    assert recording["for_each"] == "${local.recordings}"
    assert recording["topic"] == "${google_pubsub_topic.topic[each.value.topic].id}"
    assert (
        "google_service_account.invoker"
        in recording["push_config"][0]["oidc_token"][0]["service_account_email"]
    )
    assert not {"dead_letter_policy", "filter"} & recording.keys()
    may_push = resources()["google_cloud_run_v2_service_iam_member.push"]
    assert "values(local.recordings)" in may_push["for_each"]


def test_the_longest_name_still_leaves_room_for_a_service_account() -> None:
    [longest] = [
        int(digits)
        for digits in re.findall(r"a-z0-9-\]\{1,(\d+)\}", (FOLDER / "variables.tf").read_text("utf-8"))
    ]
    assert all(1 + longest + len(f"-{name}") <= 30 for name in TOPOLOGY.services)


def test_pubsub_may_move_every_dead_letter() -> None:
    publisher = resources()["google_pubsub_topic_iam_member.pubsub_dead_letters"]
    subscriber = resources()["google_pubsub_subscription_iam_member.pubsub_dead_letters"]
    assert (publisher["for_each"], publisher["topic"]) == (
        "${local.dead_letters}",
        "${google_pubsub_topic.topic[each.value].id}",
    )
    assert (subscriber["for_each"], subscriber["subscription"]) == (
        "${local.subscriptions}",
        "${google_pubsub_subscription.push[each.key].id}",
    )
    assert (_bare(publisher["role"]), _bare(subscriber["role"])) == (
        "roles/pubsub.publisher",
        "roles/pubsub.subscriber",
    )
    assert publisher["member"] == subscriber["member"] == "${local.pubsub_agent}"


def test_memory_is_encrypted_on_its_way_and_needs_an_identity() -> None:
    valkey = resources()["google_memorystore_instance.buffer"]
    assert _bare(valkey["authorization_mode"]) == "IAM_AUTH"
    assert _bare(valkey["transit_encryption_mode"]) == "SERVER_AUTHENTICATION"
    alloydb = resources()["google_alloydb_instance.primary"]
    assert "ENCRYPTED_ONLY" in str(alloydb["client_connection_config"])
    assert "'on'" in str(alloydb["database_flags"]).replace('"', "")
    assert _bare(resources()["google_alloydb_user.service"]["user_type"]) == "ALLOYDB_IAM_USER"


@needs_terraform
def test_subscriptions_are_those_of_the_library(evaluated: dict[str, Any]) -> None:
    found = evaluated["subscriptions"]
    assert found.keys() == {each.name for each in TOPOLOGY.subscriptions}
    for each in TOPOLOGY.subscriptions:
        theirs = found[each.name]
        assert (theirs["filter"], theirs["path"]) == (each.filter, each.path)
        assert theirs["dead_letter_topic"] == each.dead_letter_topic
        assert len(each.filter.encode()) <= 256
        assert evaluated["timeout_s"][each.service] >= each.ack_deadline_s


@needs_terraform
def test_recordings_are_those_of_the_library(evaluated: dict[str, Any]) -> None:
    found = evaluated["recordings"]
    assert found == {
        each.name: {
            "topic": each.topic,
            "path": each.path,
            "service": each.service,
            "ack_deadline_s": each.ack_deadline_s,
        }
        for each in TOPOLOGY.recordings
    }
    assert all(evaluated["timeout_s"][each.service] >= each.ack_deadline_s for each in TOPOLOGY.recordings)


@needs_terraform
def test_topics_are_those_of_the_library(evaluated: dict[str, Any]) -> None:
    assert set(evaluated["dead_letters"]) == DEAD_LETTERS
    assert set(evaluated["topics"]) == {*TOPOLOGY.topics, *DEAD_LETTERS}


@needs_terraform
def test_a_service_publishes_to_its_topics_and_parks_in_its_own(evaluated: dict[str, Any]) -> None:
    wanted = {
        *((name, topic) for name, service in TOPOLOGY.services.items() for topic in service.publishes),
        *((each.service, each.dead_letter_topic) for each in TOPOLOGY.subscriptions),
    }
    assert {(each["service"], each["topic"]) for each in evaluated["publishers"].values()} == wanted


@needs_terraform
def test_agents_publish_turns_and_nothing_else(evaluated: dict[str, Any]) -> None:
    assert evaluated["agent_topics"] == ["turns"]


@needs_terraform
def test_each_database_role_has_its_service(evaluated: dict[str, Any]) -> None:
    assert {*evaluated["database_roles"].values(), "lamina_operator"} == set(ROLES)


@needs_terraform
def test_the_tick_announces_the_event_that_is_due(evaluated: dict[str, Any]) -> None:
    attributes = evaluated["tick"]["attributes"]
    assert attributes["ce-type"] == CompactionDue.type
    assert {"ce-specversion", "ce-id", "ce-source"} <= attributes.keys()
    assert TOPOLOGY.schedule.topic == CompactionDue.topic
