"""What is counted and measured, and what it costs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from lamina.api import ContextResponse
from lamina.envelope import encode
from lamina.errors import (
    DependencyUnavailable,
    Forgotten,
    LaminaError,
    ModelAnswerInvalid,
    ModelRefused,
    ModelUnavailable,
)
from lamina.events import TurnRecorded
from lamina.models.gemini.client import gemini_client
from lamina.models.gemini.model import GeminiModel
from lamina.models.usage import Usage, ignore_usage
from lamina.settings import Price, Settings
from lamina.telemetry import ModelUsage, ObservedEmbedder, ObservedModel, context_answered, declared
from lamina.telemetry.instruments import instruments
from lamina.testing.models import HashEmbedder, ScriptedModel
from lamina.testing.telemetry import Recorded, recording
from lamina.turns import complete_turn
from tests.integration.gemini_endpoint import GeminiEndpoint, answering, failing, gemini_endpoint
from tests.telemetry.services import TURN, Services

MESSAGE = encode(TurnRecorded(turn=complete_turn(TURN)))


@pytest.fixture
def seen() -> Iterator[Recorded]:
    with recording() as recorded:
        yield recorded


async def test_a_turn_is_counted_by_its_app_and_told_from_its_duplicate(seen: Recorded) -> None:
    services = Services()
    await services.journey()
    await services.journey()
    assert seen.value(declared.TURNS, app="shop", outcome="recorded") == 1
    assert seen.value(declared.TURNS, app="shop", outcome="duplicate") == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "done"),
        (ModelUnavailable("429"), "retried"),
        (ModelRefused("safety"), "parked"),
        (Forgotten("turn t1"), "forgotten"),
        (RuntimeError("a bug"), "unforeseen"),
    ],
)
async def test_a_delivery_is_counted_by_how_it_ended(
    seen: Recorded, error: Exception | None, outcome: str
) -> None:
    await Services(fail=error).push("entity-extractor", MESSAGE)
    assert seen.value(declared.EVENTS, subscription="entity-extractor", outcome=outcome) == 1
    assert seen.value(declared.EVENTS) == 1
    assert seen.value(declared.PROCESS_DURATION, subscription="entity-extractor", outcome=outcome) == 1
    letters = seen.value(declared.DEAD_LETTERS, subscription="entity-extractor", type=type(error).__name__)
    assert letters == (1 if outcome == "parked" else 0)


async def test_the_lag_is_measured_from_the_first_publish_once_it_is_done(seen: Recorded) -> None:
    services = Services(fail=ModelUnavailable("429"))
    began = {"x-goog-pubsub-publish-time": (datetime.now(UTC) - timedelta(minutes=9)).isoformat()}
    await services.push("summarizer", MESSAGE, began)
    assert seen.value(declared.LAG) == 0
    services.fail = None
    await services.push("summarizer", MESSAGE, began)
    assert seen.value(declared.LAG, subscription="summarizer") == 1


async def test_what_could_not_be_parked_is_no_dead_letter(seen: Recorded) -> None:
    services = Services(fail=ModelRefused("safety"))

    def down() -> None:
        raise DependencyUnavailable("pubsub", "down")

    services.publisher.fail = down
    assert await services.push("summarizer", MESSAGE) == 503
    assert seen.value(declared.EVENTS, outcome="retried") == 1
    assert seen.value(declared.DEAD_LETTERS) == 0


async def test_a_turn_that_the_summary_sets_aside_is_a_dead_letter(seen: Recorded) -> None:
    services = Services(model=ScriptedModel(summaries=[ModelRefused("safety")] * 3))
    earlier = {**TURN, "turn_id": "t0", "occurred_at": "2026-01-05T09:00:00Z"}
    await services.buffer.append(complete_turn(earlier))
    await services.journey()
    assert len(services.publisher.parked) == 1
    assert seen.value(declared.DEAD_LETTERS, subscription="summarizer", type="ModelRefused") == 1


async def test_a_model_that_tells_no_usage_is_counted_as_calls_of_its_app(seen: Recorded) -> None:
    await Services().journey()
    calls = seen.value(declared.MODEL_CALLS, app="shop", stage="extract", model="scripted", outcome="ok")
    assert calls == 1
    assert seen.value(declared.MODEL_CALLS, app="shop", stage="embed_documents", model="hash") == 1
    assert seen.value(declared.MODEL_TOKENS) == 0
    assert seen.value(declared.MODEL_COST) == 0


async def test_its_failed_call_is_counted_as_failed(seen: Recorded) -> None:
    await Services(model=ScriptedModel(extractions=[ModelUnavailable("429")])).push(
        "entity-extractor", MESSAGE
    )
    assert seen.value(declared.MODEL_CALLS, stage="extract", outcome="failed") == 1
    assert seen.value(declared.MODEL_DURATION, stage="extract", type="ModelUnavailable") == 1


@pytest.fixture
def endpoint() -> Iterator[GeminiEndpoint]:
    with gemini_endpoint() as endpoint:
        yield endpoint


def observed_gemini(settings: Settings, usage: ModelUsage) -> ObservedModel:
    client = gemini_client(settings, first_delay_s=0.01)
    return ObservedModel(GeminiModel(client, settings, on_usage=usage))


async def test_an_answer_of_gemini_that_did_not_fit_is_counted_with_its_tokens_and_its_cost(
    seen: Recorded, endpoint: GeminiEndpoint
) -> None:
    settings = endpoint.settings()
    endpoint.otherwise = lambda _: answering("no JSON")
    usage = ModelUsage({settings.gemini_model: Price(input=1_000_000, output=2_000_000)})
    services = Services(model=observed_gemini(settings, usage), usage=ignore_usage)
    await services.push("entity-extractor", MESSAGE)
    ((_, letter),) = services.publisher.parked
    assert letter.attributes["lamina-error"] == ModelAnswerInvalid.__name__
    failed = {"app": "shop", "stage": "extract", "model": settings.gemini_model, "outcome": "failed"}
    assert seen.value(declared.MODEL_CALLS, **failed) == 2
    kinds = ("input", "cached", "output", "thought")
    tokens = {kind: seen.value(declared.MODEL_TOKENS, type=kind, **failed) for kind in kinds}
    assert min(tokens["input"], tokens["output"], tokens["thought"]) > 0
    cost = 1 * (tokens["input"] + tokens["cached"]) + 2 * (tokens["output"] + tokens["thought"])
    assert seen.value(declared.MODEL_COST, app="shop", stage="extract") == pytest.approx(cost)


async def test_a_call_that_gemini_did_not_answer_is_counted_without_tokens(
    seen: Recorded, endpoint: GeminiEndpoint
) -> None:
    settings = endpoint.settings(model_attempts=1)
    endpoint.otherwise = lambda _: failing(503, "UNAVAILABLE")
    services = Services(model=observed_gemini(settings, ModelUsage({})), usage=ignore_usage)
    assert await services.push("entity-extractor", MESSAGE) == 503
    assert seen.value(declared.MODEL_CALLS, app="shop", outcome="failed") == 1
    assert seen.value(declared.MODEL_TOKENS) == 0


def test_tokens_from_a_cache_are_input_once_and_cost_what_they_cost(seen: Recorded) -> None:
    usage = Usage(
        "extract", "g", ok=True, prompt_tokens=100, cached_tokens=60, output_tokens=10, thought_tokens=5
    )
    assert usage.billed() == {"input": 40, "cached": 60, "output": 10, "thought": 5}
    ModelUsage({"g": Price(input=2, cached=0.5, output=10)})(usage)
    assert seen.value(declared.MODEL_COST) == pytest.approx((80 + 30 + 150) / 1e6)
    assert Price(input=2, output=10).of(usage.billed()) == pytest.approx((200 + 150) / 1e6)


def test_a_model_without_a_price_costs_nothing_known(seen: Recorded) -> None:
    ModelUsage({"another": Price(input=1)})(Usage("extract", "g", ok=True, prompt_tokens=5))
    assert seen.value(declared.MODEL_TOKENS, type="input") == 5
    assert declared.MODEL_COST.name not in seen.measured()


async def test_an_embedders_questions_are_counted(seen: Recorded) -> None:
    await ObservedEmbedder(HashEmbedder(), ModelUsage({})).query("theme?")
    assert seen.value(declared.MODEL_CALLS, stage="embed_query", model="hash") == 1


def test_a_context_tells_its_stages_and_what_it_lacked(seen: Recorded) -> None:
    answer = ContextResponse.model_construct(timings_ms={"buffer": 2.0, "total": 40.0}, degraded=("vectors",))
    context_answered(answer)
    context_answered(answer, timed=False)
    assert seen.value(declared.CONTEXT_DURATION, stage="total") == 1
    assert seen.value(declared.DEGRADED, part="vectors") == 2


def test_apps_without_end_share_one_name(seen: Recorded) -> None:
    usage = Usage("extract", "g", ok=True)
    names = {instruments().app(f"app-{number}") for number in range(declared.MOST_APPS * 2)}
    assert len(names) == declared.MOST_APPS + 1
    ModelUsage({})(usage)
    assert seen.value(declared.MODEL_CALLS, app=declared.OTHER_APPS) == 1


def test_prices_are_read_from_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINA_MODEL_PRICES", '{"g": {"input": 0.3, "output": 2.5}}')
    assert Settings.load().model_prices == {"g": Price(input=0.3, output=2.5)}
    for mistake in ("{", '{"g": {"input": -1}}', '{"g": {"input": 1, "ouput": 2}}', "[1]"):
        monkeypatch.setenv("LAMINA_MODEL_PRICES", mistake)
        with pytest.raises(LaminaError, match=r"^LAMINA_MODEL_PRICES: "):
            Settings.load()
