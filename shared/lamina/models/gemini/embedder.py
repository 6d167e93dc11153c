"""Gemini's embedding models."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from google.genai import Client, types

from lamina.errors import ModelAnswerInvalid
from lamina.fence import strip_fenced
from lamina.models.gemini.client import models_of
from lamina.models.gemini.errors import translated
from lamina.models.gemini.usage import OnUsage, Usage, ignore_usage
from lamina.models.tokens import EstimatedTokens
from lamina.ports import Vector
from lamina.settings import Settings
from lamina.text import storable

DIMENSIONS = 768

_REQUEST_TOKENS = 16_000
"""Tokens in one request. The limit is 20,000; ours are estimates."""
_TEXT_TOKENS = 1_900
"""Tokens of one text: what the models read is 2,048, and the rest would be cut or refused."""
_REQUEST_TEXTS = 100
"""Texts in one request. Gemini's API takes 100; Vertex takes 250 with some models."""

Task = Literal["RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"]

# The second generation takes the task in the text, and refuses or ignores the parameter.
_PREFIXES: dict[Task, str] = {
    "RETRIEVAL_DOCUMENT": "title: none | text: ",
    "RETRIEVAL_QUERY": "task: search result | query: ",
}


class GeminiEmbedder:
    """Embeds with `gemini_embedding_model`, cut to 768 dimensions and brought back to length 1."""

    def __init__(self, client: Client, settings: Settings, *, on_usage: OnUsage = ignore_usage) -> None:
        self._models = models_of(client)
        self._model = settings.gemini_embedding_model
        self._prefixed = self._model.rsplit("/", 1)[-1].startswith("gemini-embedding-2")
        self._on_usage = on_usage
        self._count = EstimatedTokens().count
        self.name = f"{self._model}/{DIMENSIONS}"

    async def warm(self) -> None:
        """Nothing is loaded here."""

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text; a text longer than the model reads is embedded by its head."""
        vectors: list[Vector] = []
        for batch in self._batches([self._prepared(text) for text in texts]):
            vectors += await self._embed("embed_documents", batch, "RETRIEVAL_DOCUMENT")
        return vectors

    async def query(self, text: str) -> Vector:
        """The vector of a question."""
        return (await self._embed("embed_query", [self._prepared(text)], "RETRIEVAL_QUERY"))[0]

    def _prepared(self, text: str) -> str:
        """The text without echoed memory, cut to what the model reads; never empty, which the API refuses."""
        clean = storable(strip_fenced(text)).strip() or "-"
        tokens = self._count(clean)
        return clean if tokens <= _TEXT_TOKENS else clean[: len(clean) * _TEXT_TOKENS // tokens]

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        tokens = 0
        for text in texts:
            size = self._count(text)
            if batch and (len(batch) == _REQUEST_TEXTS or tokens + size > _REQUEST_TOKENS):
                yield batch
                batch, tokens = [], 0
            batch.append(text)
            tokens += size
        if batch:
            yield batch

    async def _embed(self, stage: str, texts: Sequence[str], task: Task) -> list[Vector]:
        prefix = _PREFIXES[task] if self._prefixed else ""
        config = types.EmbedContentConfig(
            output_dimensionality=DIMENSIONS, task_type=None if self._prefixed else task
        )
        # A list of Content, not of strings: some models would make one vector of several strings.
        contents = [types.Content(parts=[types.Part(text=prefix + text)]) for text in texts]
        try:
            response = await self._models.embed_content(model=self._model, contents=contents, config=config)
        except Exception as error:
            self._on_usage(Usage(stage, self._model, ok=False))
            meaning = translated(error)
            if meaning is None:
                raise
            raise meaning from error
        embeddings = response.embeddings or []
        vectors = [unit for embedding in embeddings if (unit := _unit(embedding.values)) is not None]
        self._on_usage(
            Usage(stage, self._model, ok=len(vectors) == len(texts), prompt_tokens=_tokens(response))
        )
        if len(vectors) != len(texts) or len(embeddings) != len(texts):
            raise ModelAnswerInvalid(f"{stage}: {len(vectors)} usable vectors for {len(texts)} texts")
        return vectors


def _unit(values: list[float] | None) -> Vector | None:
    """The vector with length 1; None where it is not of our width or has no direction."""
    length = math.hypot(*(values or []))
    if not values or len(values) != DIMENSIONS or not math.isfinite(length) or length == 0:
        return None
    return [value / length for value in values]


def _tokens(response: types.EmbedContentResponse) -> int:
    """Tokens read: Gemini's API tells them for the request, Vertex for each text."""
    told = response.usage_metadata.prompt_token_count if response.usage_metadata else None
    each = [embedding.statistics for embedding in response.embeddings or []]
    return told or round(sum((one.token_count or 0) for one in each if one))
