"""`lamina status --cloud`, against an endpoint that answers as Cloud Monitoring does."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from lamina.errors import ConfigurationError, DependencyUnavailable
from lamina.ports import IndexedLetter
from lamina.postgres.dead_letters import PostgresDeadLetterIndex
from lamina.topology import load_topology
from lamina_services.cli.monitoring import CloudMonitoring
from tests.builders import a_user
from tests.fixtures_postgres import TestDatabase

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SUBSCRIPTIONS = [each.name for each in load_topology().subscriptions]


class FakeMonitoring:
    """Time series by metric and subscription: values of the latest minutes, newest first."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.metrics: dict[str, dict[str, list[int]]] = {
            "num_undelivered_messages": {name: [0, 0] for name in SUBSCRIPTIONS},
            "oldest_unacked_message_age": {name: [0, 0] for name in SUBSCRIPTIONS},
            "ack_message_count": {},
        }
        self.status = 200
        self.asked: list[dict[str, str]] = []

    def wait(self, name: str, count: int, age_s: int, acks: int = 0) -> None:
        self.metrics["num_undelivered_messages"][name] = [count, count]
        self.metrics["oldest_unacked_message_age"][name] = [age_s, max(0, age_s - 60)]
        if acks:
            self.metrics["ack_message_count"][name] = [acks, 0]

    def answer(self, url: str) -> tuple[int, dict[str, Any]]:
        path, query = urlsplit(url).path, {k: v[0] for k, v in parse_qs(urlsplit(url).query).items()}
        self.asked.append({"path": path, **query})
        if self.status != 200:
            return self.status, {"error": {"code": self.status, "message": "Permission denied"}}
        metric = query["filter"].partition("subscription/")[2].partition('"')[0]
        series = [self._series(name, values) for name, values in self.metrics[metric].items()]
        first = int(query.get("pageToken", "0"))
        page: dict[str, Any] = {"timeSeries": series[first : first + 4]}
        return 200, page | ({"nextPageToken": str(first + 4)} if len(series) > first + 4 else {})

    def _series(self, name: str, values: list[int]) -> dict[str, Any]:
        return {
            "resource": {
                "type": "pubsub_subscription",
                "labels": {"project_id": "p", "subscription_id": name},
            },
            "points": [
                {
                    "interval": {
                        "endTime": f"{self.now - timedelta(minutes=minute):%Y-%m-%dT%H:%M:%SZ}",
                    },
                    "value": {"int64Value": str(value)},
                }
                for minute, value in enumerate(values)
            ],
        }


def client(fake: FakeMonitoring) -> CloudMonitoring:
    def run(request: httpx.Request) -> httpx.Response:
        status, body = fake.answer(str(request.url))
        assert "authorization" not in request.headers, "a token is for https"
        return httpx.Response(status, json=body)

    return CloudMonitoring(
        httpx.AsyncClient(transport=httpx.MockTransport(run)), "p", "http://monitoring.test/"
    )


async def test_counters_are_the_latest_samples_from_every_page() -> None:
    fake = FakeMonitoring(NOW)
    fake.wait("summarizer", 4, 200, acks=7)
    queues = await client(fake).queues(NOW)
    assert queues.keys() == set(SUBSCRIPTIONS)
    summarizer = queues["summarizer"]
    assert (summarizer.waiting, summarizer.done) == (4, 7)
    assert summarizer.age_s(NOW.timestamp()) == 200
    assert summarizer.last_done_at == NOW.timestamp()
    assert queues["turn-ingest"].oldest_at is None
    assert {each["path"] for each in fake.asked} == {"/v3/projects/p/timeSeries"}
    assert fake.asked[0]["interval.endTime"] == "2026-03-01T12:00:00Z"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, ConfigurationError),
        (404, ConfigurationError),
        (429, DependencyUnavailable),
        (503, DependencyUnavailable),
    ],
)
async def test_a_refusal_is_a_setting_to_mend_and_an_outage_passes(
    status: int, error: type[Exception]
) -> None:
    fake = FakeMonitoring(NOW)
    fake.status = status
    with pytest.raises(error, match="Cloud Monitoring"):
        await client(fake).queues(NOW)


@contextmanager
def served(fake: FakeMonitoring) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = fake.answer(self.path)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def status(url: str, **variables: str) -> tuple[int | None, dict[str, dict[str, Any]]]:
    """Exit code, and the parts by name."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAMINA_")}
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lamina_services.cli.main", "status", "--cloud", "--json"),
        env={**kept, "GOOGLE_CLOUD_PROJECT": "p", "LAMINA_MONITORING_URL": url, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await command.communicate()
    assert printed, said
    return command.returncode, {part["name"]: part for part in json.loads(printed)}


async def test_the_command_turns_red_for_the_stage_that_is_dead_and_for_no_other() -> None:
    fake = FakeMonitoring(datetime.now(UTC))
    fake.wait("summarizer", 40, 1200, acks=3)
    fake.wait("entity-extractor", 2, 700)
    with served(fake) as url:
        code, parts = await status(url)
    assert code == 1
    lights = {name: part["light"] for name, part in parts.items()}
    assert lights["turn.recorded → entity-extractor"] == "down"
    assert lights["turn.recorded → summarizer"] == "look"
    assert lights["turn.recorded → episodic-embedder"] == "ok"
    assert lights["dead letters → dead-letter-recorder"] == "unknown", "there is no sample of it"


async def test_names_are_looked_up_with_the_environments_prefix() -> None:
    fake = FakeMonitoring(datetime.now(UTC))
    for series in fake.metrics.values():
        for name in list(series):
            series[f"test-{name}"] = series.pop(name)
    with served(fake) as url:
        code, parts = await status(url, LAMINA_TOPIC_PREFIX="test-")
    assert code == 0
    assert parts["turn.recorded → summarizer"]["light"] == "ok"


async def test_what_cannot_be_asked_is_down_and_its_stages_are_unknown() -> None:
    fake = FakeMonitoring(datetime.now(UTC))
    fake.status = 403
    with served(fake) as url:
        code, parts = await status(url)
    assert (code, parts["monitoring"]["light"]) == (1, "down")
    assert parts["turn.recorded → summarizer"]["light"] == "unknown"


async def test_the_database_adds_dead_letters_by_error(memory_database: TestDatabase) -> None:
    async with memory_database.open("lamina_dead_letter_recorder", size=1) as database:
        await PostgresDeadLetterIndex(database).record(
            IndexedLetter(
                app="shop",
                user_id=a_user(),
                session_id="s1",
                turn_id="t1",
                subscription="summarizer",
                error="ModelRefused",
                reason="declined",
                failures=1,
                service="summarizer",
                parked_at=datetime.now(UTC),
            )
        )
    with served(FakeMonitoring(datetime.now(UTC))) as url:
        code, parts = await status(url, LAMINA_DATABASE_URL=memory_database.owner)
        assert code == 0
        assert parts["dead letters of summarizer"]["facts"]["by_error"] == {"ModelRefused": 1}
        reader = memory_database.service("lamina_context")
        code, parts = await status(url, LAMINA_DATABASE_URL=reader)
    assert (code, parts["log"]["light"]) == (0, "unknown")
    assert "lamina_operator" in parts["log"]["detail"]
