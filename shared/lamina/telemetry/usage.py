"""Models observed: each task a span, each call counted with its tokens and what they cost."""

import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.trace import get_current_span

from lamina.api import EntityView
from lamina.model import Statement, SummaryLine, Turn
from lamina.models.usage import OnUsage, Usage
from lamina.ports import Embedder, LanguageModel, OldEpisode, Vector
from lamina.settings import Price
from lamina.telemetry import declared
from lamina.telemetry.declared import Attribute
from lamina.telemetry.instruments import instruments
from lamina.telemetry.observing import span
from lamina.telemetry.scope import current

_VERSION = re.compile(r"/\d+$")


class ModelUsage:
    """Takes every usage, and counts it for the app whose event or request is at hand."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = prices

    def __call__(self, usage: Usage) -> None:
        """Count."""
        to = instruments()
        scope = current.get()
        app = {Attribute.APP.value: to.app(scope.app if scope else "")}
        stage = {Attribute.STAGE.value: usage.stage}
        outcome = {Attribute.OUTCOME.value: "ok" if usage.ok else "failed"}
        whose = {**app, **stage, Attribute.MODEL.value: usage.model, **outcome}
        to.model_calls.add(1, whose)
        for kind, tokens in usage.billed().items():
            if tokens:
                to.model_tokens.add(tokens, {**whose, Attribute.TOKEN_KIND.value: kind})
        price = self._prices.get(usage.model)
        if price is not None:
            to.model_cost.add(price.of(usage.billed()), {**app, **stage})
        live = get_current_span()
        if live.is_recording():
            (event,) = declared.MODEL_WORK.events
            tokens_in, tokens_out = usage.prompt_tokens, usage.output_tokens + usage.thought_tokens
            counts = {Attribute.TOKENS_IN.value: tokens_in, Attribute.TOKENS_OUT.value: tokens_out}
            live.add_event(event, {**outcome, **counts})


@contextmanager
def _working(stage: str, name: str, task: str, told: OnUsage | None) -> Generator[None]:
    """Around one task. `told`: counts it as one call, for a model that does not tell its calls itself."""
    model = _VERSION.sub("", name)
    attributes = {
        Attribute.MODEL_TASK.value: task,
        Attribute.MODEL.value: model,
        Attribute.STAGE.value: stage,
    }
    began = time.perf_counter()
    error: BaseException | None = None
    with span(declared.MODEL_WORK, attributes, stage=stage, model=model):
        try:
            yield
        except BaseException as caught:
            error = caught
            raise
        finally:
            if told:
                told(Usage(stage, model, ok=error is None))
            why = {Attribute.ERROR.value: type(error).__name__} if error else {}
            instruments().model_duration.record(time.perf_counter() - began, {**attributes, **why})


class ObservedModel:
    """A language model whose work is observed. `told`: where it does not tell its calls itself."""

    def __init__(self, model: LanguageModel, told: OnUsage | None = None) -> None:
        self.name = model.name
        self.model = model
        self._told = told

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        """As the model does."""
        with _working("summarise", self.name, "chat", self._told):
            return await self.model.summarise(previous, turns, budget)

    async def extract(self, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
        """As the model does."""
        with _working("extract", self.name, "chat", self._told):
            return await self.model.extract(turn, known)

    async def consolidate(self, episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
        """As the model does."""
        with _working("consolidate", self.name, "chat", self._told):
            return await self.model.consolidate(episodes, budget)


class ObservedEmbedder:
    """An embedder whose work is observed. `told`: where it does not tell its calls itself."""

    def __init__(self, embedder: Embedder, told: OnUsage | None = None) -> None:
        self.name = embedder.name
        self.embedder = embedder
        self._told = told

    async def warm(self) -> None:
        """As the embedder does."""
        await self.embedder.warm()

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        """As the embedder does."""
        with _working("embed_documents", self.name, "embeddings", self._told):
            return await self.embedder.documents(texts)

    async def query(self, text: str) -> Vector:
        """As the embedder does."""
        with _working("embed_query", self.name, "embeddings", self._told):
            return await self.embedder.query(text)
