"""Telemetry is on where OpenTelemetry's variables say so, and costs not even an import elsewhere."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lamina.telemetry import sdk
from lamina.telemetry.setup import Wanted
from lamina.topology import load_topology
from tests.telemetry.collector import collecting

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEAVY = ("opentelemetry.sdk", "opentelemetry.exporter", "prometheus_client")
PUSH = """
import asyncio, sys, httpx
{imports}
import lamina.pubsub.publisher
from lamina.telemetry import configure_logging
from lamina_services.turn_ingest.main import turn_ingest
from starlette.applications import Starlette
from starlette.routing import Route

async def ask():
    app = Starlette(routes=[Route("/{{path:path}}", turn_ingest, methods=["GET", "POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        assert (await http.post("/v1/turns", json={{}})).status_code == 422
        return (await http.get("/metrics")).text

text = asyncio.run(ask())
assert text.startswith("# Nothing is measured here."), text
print(*(name for name in sys.modules if name.startswith({heavy})))
"""


def environment(**variables: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {**clean, **variables}


@pytest.mark.parametrize(
    ("variables", "traces", "metrics"),
    [
        ({}, "", ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, "", ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "otlp", "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, "otlp", ""),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp", ""),
        ({"OTEL_METRICS_EXPORTER": "prometheus, otlp"}, "", "otlp prometheus"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, "otlp", ""),
        ({"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_METRICS_EXPORTER": "prometheus"}, "", "prometheus"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, "", ""),
    ],
)
def test_the_variables_choose_the_exporters(variables: Mapping[str, str], traces: str, metrics: str) -> None:
    assert Wanted.of(variables) == Wanted(frozenset(traces.split()), frozenset(metrics.split()))


def test_off_means_that_nothing_of_it_is_even_imported() -> None:
    services = load_topology().services.values()
    imports = "\n".join(f"import lamina_services.{service.package}.main" for service in services)
    program = PUSH.format(imports=imports, heavy=HEAVY)
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@contextmanager
def service(**variables: str) -> Generator[httpx.Client]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = subprocess.Popen(  # noqa: S603 - our own module, on a socket of our own
            [sys.executable, "-m", "lamina_services.local.serve", "turn-ingest", str(listener.fileno())],
            env=environment(**variables),
            pass_fds=[listener.fileno()],
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_for(client)
            yield client
    finally:
        process.terminate()
        process.wait(15)


def wait_for(client: httpx.Client) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            client.get("/metrics")
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the service does not come up"
            time.sleep(0.05)
        else:
            return


def test_prometheus_can_read_what_a_service_measures() -> None:
    with service(OTEL_METRICS_EXPORTER="prometheus") as client:
        assert client.post("/v1/turns", json={"app": "shop"}).status_code == 422
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    (count,) = [
        sample
        for sample in families["http_server_request_duration_seconds"].samples
        if sample.name.endswith("_count")
    ]
    assert count.value == 1
    assert count.labels["http_route"] == "/v1/turns"
    assert count.labels["http_response_status_code"] == "422"
    (target,) = families["target_info"].samples
    assert target.labels["service_name"] == "lamina-turn-ingest"
    assert "process_resident_memory_bytes" in families


def test_an_endpoint_gets_the_spans_in_the_callers_trace_at_the_latest_when_the_service_stops() -> None:
    with collecting() as collector:
        with service(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as client:
            client.post("/v1/turns", json={"app": "shop"}, headers={"traceparent": PARENT})
        assert collector.spans() == {"POST /v1/turns": "0af7651916cd43dd8448eb211c80319c"}
        assert "/v1/metrics" in dict(collector.bodies)


def test_an_exporter_that_cannot_be_set_up_costs_no_request() -> None:
    with service(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="10") as client:
        assert client.post("/v1/turns", json={"app": "shop"}).status_code == 422


async def test_on_cloud_run_spans_are_sent_at_the_end_of_a_push_but_not_of_every_one() -> None:
    sent: list[float] = []
    now = [0.0]
    sending = sdk.Sending(lambda: sent.append(now[0]), every_s=5, clock=lambda: now[0])
    elsewhere = sdk.Sending(lambda: sent.append(-1), every_s=None, clock=lambda: now[0])
    for now[0] in (1.0, 6.0, 7.0, 12.0):
        await sending.after_work()
        await elsewhere.after_work()
    assert sent == [6.0, 12.0]


def test_a_trace_id_made_of_an_event_is_a_valid_one_and_always_the_same() -> None:
    first = sdk.trace_id_of("5d0953b4-47c0-51be-ba95-21a8863b69a8")
    assert first == sdk.trace_id_of("5d0953b4-47c0-51be-ba95-21a8863b69a8") != sdk.trace_id_of("another")
    assert 0 < first < 2**128
