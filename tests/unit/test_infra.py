"""The image and the containers say the same as topology.json and Settings."""

# The generated client leaves its `retry` and `request` arguments untyped.
# pyright: reportUnknownMemberType=false

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import yaml
from google.pubsub_v1 import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from grpc.aio import insecure_channel

from lamina.events import PAYLOADS
from lamina.postgres.migrate import ROLES
from lamina.settings import Settings, variable_of
from lamina.topology import load_topology
from lamina_services.local.containers import create_topics
from lamina_services.local.logins import role_of
from lamina_services.local.pubsub import Emulator

ROOT = Path(__file__).parents[2]
TOPOLOGY = load_topology()
SETTINGS = {variable_of(name) for name in Settings.model_fields}
NOT_SETTINGS = {
    *("PORT", "FUNCTION_TARGET", "FUNCTION_SOURCE"),  # of functions-framework
    "PUBSUB_EMULATOR_HOST",  # of Google's client
    *("OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"),  # of OpenTelemetry
    *("LAMINA_GRANT", "POSTGRES_DB", "POSTGRES_HOST_AUTH_METHOD"),
}

services = pytest.mark.parametrize("name", sorted(TOPOLOGY.services))


def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))


def environment(name: str) -> dict[str, str]:
    given: dict[str, Any] = compose()["services"][name].get("environment", {})
    return {variable: str(value) for variable, value in given.items()}


def container_logins() -> dict[str, str]:
    """Each role that `migrate` grants, and to which login."""
    pairs = (pair.partition("=") for pair in environment("migrate")["LAMINA_GRANT"].split())
    return {role: login for role, _, login in pairs}


def test_compose_has_one_container_for_each_service() -> None:
    parts = {"postgres", "valkey", "pubsub", "migrate", "topics", "scheduler"}
    assert compose()["services"].keys() == TOPOLOGY.services.keys() | parts


@services
def test_a_container_serves_its_function_on_the_port_that_pushes_go_to(name: str) -> None:
    service, env = TOPOLOGY.services[name], environment(name)
    assert env["PORT"] == str(service.port)
    assert compose()["services"][name]["ports"] == [f"127.0.0.1:{service.port}:{service.port}"]
    assert env["FUNCTION_TARGET"] == service.target
    assert env["FUNCTION_SOURCE"] == f"services/lamina_services/{service.package}/main.py"
    assert (ROOT / env["FUNCTION_SOURCE"]).is_file()


@services
def test_a_container_logs_in_as_the_login_that_migrate_gives_its_role_to(name: str) -> None:
    url = environment(name).get("LAMINA_DATABASE_URL", "")
    assert urlsplit(url).username == container_logins().get(role_of(name) or "")


def test_migrate_grants_every_role() -> None:
    assert container_logins().keys() | {"lamina_operator"} == set(ROLES)


def test_every_variable_of_a_container_is_one_that_something_reads() -> None:
    used = {variable for name in compose()["services"] for variable in environment(name)}
    assert used <= SETTINGS | NOT_SETTINGS


def test_containers_wait_for_what_they_need() -> None:
    containers = compose()["services"]
    for container in containers.values():
        for needed, wanted in container.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "test" in containers[needed]["healthcheck"]
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert "restart" not in containers[needed]


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for each in compose()["services"].values() for port in each.get("ports", [])]
    assert len(ports) == len(set(ports))
    assert all(port.startswith("127.0.0.1:") for port in ports)


async def test_the_topics_container_points_each_push_at_its_services_container() -> None:
    async with Emulator(port=0) as emulator, insecure_channel(emulator.endpoint) as channel:
        settings = Settings.model_validate(
            {"GOOGLE_CLOUD_PROJECT": environment("topics")["GOOGLE_CLOUD_PROJECT"]}
        )
        await create_topics(emulator.endpoint, settings)
        client = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))
        for each in TOPOLOGY.subscriptions:
            name = f"projects/{settings.project}/subscriptions/{each.name}"
            found = await client.get_subscription(subscription=name)
            port = environment(each.service)["PORT"]
            assert found.push_config.push_endpoint == f"http://{each.service}:{port}{each.path}"
        for each in TOPOLOGY.recordings:
            name = f"projects/{settings.project}/subscriptions/{each.name}"
            found = await client.get_subscription(subscription=name)
            port = environment(each.service)["PORT"]
            assert found.push_config.push_endpoint == f"http://{each.service}:{port}{each.path}"
            assert (found.dead_letter_policy.dead_letter_topic, found.filter) == ("", "")


def test_what_the_dockerfile_copies_exists_and_reaches_the_builder() -> None:
    dockerfile = (ROOT / "infra/Dockerfile").read_text("utf-8")
    ignore = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = {
        path for line in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.M) for path in line.split()
    }
    assert copied == {line[1:] for line in ignore if line.startswith("!")}
    assert all((ROOT / path).exists() for path in copied)
    assert (ROOT / re.findall(r"FUNCTION_SOURCE=(\S+)", dockerfile)[0]).is_file()
    assert "/srv/lamina" in re.findall(r"^WORKDIR (\S+)", dockerfile, re.M)
    assert re.findall(r"^USER (\S+)", dockerfile, re.M) == ["lamina"]


def test_the_image_serves_with_what_is_installed() -> None:
    dockerfile = (ROOT / "infra/Dockerfile").read_text("utf-8")
    module, factory = re.findall(r"--factory (\S+):(\w+)", dockerfile)[0]
    assert callable(getattr(importlib.import_module(module), factory))
    assert all(importlib.util.find_spec(name) for name in ("uvloop", "httptools"))


@services
def test_a_service_is_given_what_its_health_check_asks(name: str) -> None:
    service = TOPOLOGY.services[name]
    needs = {"pubsub"} if service.publishes else set[str]()
    needs |= set(service.uses) - {"model"}
    assert _needs_of(service.package) == needs
    assert ("database" in service.uses) == (role_of(name) is not None)


@services
def test_a_service_may_publish_the_payloads_that_its_code_knows(name: str) -> None:
    service = TOPOLOGY.services[name]
    taken = {each.topic for each in TOPOLOGY.subscriptions if each.service == name}
    assert _payload_topics(service.package) - taken == set(service.publishes) - taken
    assert set(service.publishes) <= set(TOPOLOGY.topics)


@services
def test_the_readme_says_where_a_service_stands(name: str) -> None:
    lines = (ROOT / "infra/README.md").read_text("utf-8").splitlines()
    cells = [
        cell.strip() for cell in next(line for line in lines if line.startswith(f"| {name} |")).split("|")
    ]
    _, _, subscriptions, publishes, endpoints, environment, role, _ = cells
    theirs = [each for each in TOPOLOGY.subscriptions if each.service == name]
    pairs = [f"`{each.name}` ← `{each.topic}`" for each in theirs]
    assert subscriptions == (", ".join(pairs) or "none")
    assert publishes == (", ".join(f"`{topic}`" for topic in TOPOLOGY.services[name].publishes) or "none")
    assert all(f"`{each.path}`" in endpoints for each in theirs)
    assert environment.split() == [used[0].upper() for used in TOPOLOGY.services[name].uses]
    assert (role_of(name) or "none") in role


def _sources(package: str) -> list[ast.Module]:
    folder = ROOT / "services/lamina_services" / package
    return [ast.parse(path.read_text("utf-8")) for path in sorted(folder.glob("*.py"))]


def _needs_of(package: str) -> set[str]:
    """What is given as `needs=` to the service's Worker."""
    for tree in _sources(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "needs":
                return set(cast("tuple[str, ...]", ast.literal_eval(node.value)))
    raise AssertionError(f"{package} makes no Worker")


def _payload_topics(package: str) -> set[str]:
    """The topics of the payloads that the service's modules import."""
    topics = {payload.__name__: payload.topic for payload in PAYLOADS.values()}
    return {
        topics[name.name]
        for tree in _sources(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "lamina.events"
        for name in node.names
        if name.name in topics
    }
