"""All that is emitted is declared in one file, and all that is declared there is emitted."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lamina
import lamina_services
from lamina.envelope import encode
from lamina.errors import ModelRefused, ModelUnavailable
from lamina.events import TurnRecorded
from lamina.models.usage import Usage
from lamina.settings import Price, Settings
from lamina.telemetry import ModelUsage, declared
from lamina.telemetry.http import served
from lamina.testing.buffer import InMemoryBuffer
from lamina.testing.models import HashEmbedder
from lamina.testing.reader import InMemoryReader
from lamina.testing.telemetry import Recorded, recording
from lamina.turns import complete_turn
from lamina.wiring import Wiring
from lamina_services.context.main import answer
from tests.telemetry.services import TURN, Services, client_of

PACKAGES = [Path(str(package.__file__)).parent for package in (lamina, lamina_services)]
LOG_CALLS = ("debug", "info", "warning", "error", "exception", "critical", "log")
OF_OPENTELEMETRY = ("create_counter", "create_histogram", "create_up_down_counter", "start_as_current_span")


async def everything() -> Recorded:
    """One of each: a journey, every end of a delivery, a context, a search, and a model that was paid."""
    with recording() as seen:
        services = Services(usage=ModelUsage({"scripted": Price(input=1)}))
        earlier = {**TURN, "turn_id": "t0", "occurred_at": "2026-01-05T09:00:00Z"}
        await services.buffer.append(complete_turn(earlier))
        await services.journey()
        message = encode(TurnRecorded(turn=complete_turn(TURN)))
        for error in (ModelRefused("no"), ModelUnavailable("429"), RuntimeError("a bug")):
            services.fail = error
            metadata = {
                "x-goog-pubsub-publish-time": "2026-01-05T10:00:00Z",
                "x-goog-pubsub-message-id": "41",
                "x-goog-pubsub-delivery-attempt": "3",
            }
            await services.push("summarizer", message, metadata)
        services.fail = None
        await services.push("summarizer", message, {"x-goog-pubsub-publish-time": "2026-01-05T10:00:00Z"})
        services.usage(Usage("extract", "scripted", ok=True, prompt_tokens=9))
        parts = Wiring(Settings.model_construct())
        parts.buffer, parts.reader, parts.embedder = InMemoryBuffer(), InMemoryReader(), HashEmbedder()
        http = client_of(lambda request: served("context", request, lambda it: answer(it, lambda: parts)))
        whose = {"app": "shop", "user_id": "ana", "session_id": "s1", "query": "theme?"}
        assert (await http.post("/v1/context", json=whose)).status_code == 200
        assert (await http.post("/v1/context", json={})).status_code == 422
        seen.measured()  # while there is somebody to ask
        return seen


@pytest.fixture
async def seen() -> Recorded:
    return await everything()


async def test_every_metric_that_is_measured_is_declared_with_its_attributes(seen: Recorded) -> None:
    known = {metric.name: metric for metric in declared.METRICS}
    for name, points in seen.measured().items():
        for attributes, _ in points:
            assert attributes.keys() <= known[name].attributes, name


async def test_every_span_is_declared_with_its_attributes(seen: Recorded) -> None:
    for span in seen.spans:
        kinds = [each for each in declared.SPANS if each.kind is span.kind]
        (kind,) = [each for each in kinds if pattern(each.name).fullmatch(span.name)]
        assert (span.attributes or {}).keys() <= kind.attributes, span.name
        for event in span.events:
            assert event.name in kind.events
            assert (event.attributes or {}).keys() <= declared.MODEL_CALL


async def test_a_context_is_a_span_with_a_child_for_each_stage(seen: Recorded) -> None:
    [parent, refused] = [span for span in seen.spans if span.name == "POST /v1/context"]
    assert parent.context is not None
    children = {
        span.name for span in seen.spans if span.parent and span.parent.span_id == parent.context.span_id
    }
    assert children == {"ask buffer", "ask embedder", "ask database", "assemble"}
    assert dict(parent.attributes or {})["http.response.status_code"] == 200
    assert dict(refused.attributes or {})["http.response.status_code"] == 422


def pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", r"\\S+", re.escape(template)))


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            yield path, ast.parse(path.read_text("utf-8"))


def test_instruments_and_spans_are_made_by_the_telemetry_package_alone() -> None:
    for path, module in modules():
        if "telemetry" in path.parts:
            continue
        names = {node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)}
        assert not names & set(OF_OPENTELEMETRY), path


def test_a_log_message_is_a_literal_and_its_fields_are_declared() -> None:
    """What varies is an argument, so that an error's words pass through `told`."""
    for path, module in modules():
        for call in ast.walk(module):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if not isinstance(call.func.value, ast.Name) or call.func.value.id not in ("log", "_log"):
                continue
            if call.func.attr not in LOG_CALLS:
                continue
            literal = [each for each in call.args if isinstance(each, ast.JoinedStr)]
            assert not literal, f"{path}:{call.lineno}"
            for keyword in call.keywords:
                if keyword.arg == "extra":
                    assert isinstance(keyword.value, ast.Dict)
                    names = {ast.literal_eval(key) for key in keyword.value.keys if key}
                    assert names <= declared.LOG_FIELDS.keys()


def test_every_declared_metric_has_an_instrument() -> None:
    source = (PACKAGES[0] / "telemetry" / "instruments.py").read_text("utf-8")
    names = [name for name, value in vars(declared).items() if isinstance(value, declared.Metric)]
    assert len(names) == len(declared.METRICS)
    assert all(f"declared.{name})" in source for name in names)
