"""Gemini's embeddings, over HTTP."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import Client, types
from google.oauth2.credentials import Credentials

from lamina.errors import LaminaError, ModelAnswerInvalid, ModelRequestInvalid, ModelUnavailable
from lamina.fence import fence
from lamina.models.gemini.client import gemini_client
from lamina.models.gemini.embedder import GeminiEmbedder
from lamina.models.gemini.usage import Usage, ignore_usage
from lamina.models.tokens import EstimatedTokens
from tests.integration.gemini_endpoint import GeminiEndpoint, Reply, embedding, failing, gemini_endpoint, late


@pytest.fixture
def endpoint() -> Iterator[GeminiEndpoint]:
    with gemini_endpoint() as endpoint:
        endpoint.otherwise = embedding
        yield endpoint


def embedder_at(
    endpoint: GeminiEndpoint, usages: list[Usage] | None = None, **changes: Any
) -> GeminiEmbedder:
    settings = endpoint.settings(**changes)
    on_usage = ignore_usage if usages is None else usages.append
    return GeminiEmbedder(gemini_client(settings, first_delay_s=0.01), settings, on_usage=on_usage)


async def test_vectors_are_768_wide_of_length_one_and_in_order(endpoint: GeminiEndpoint) -> None:
    texts = ["a", "bb", "ccc"]
    vectors = await embedder_at(endpoint).documents(texts)

    for text, vector in zip(texts, vectors, strict=True):
        assert len(vector) == 768
        assert math.isclose(math.hypot(*vector), 1.0, rel_tol=1e-9)
        assert vector[0] / vector[2] == pytest.approx(len(text) / 3)


async def test_documents_and_queries_name_their_task_and_width(endpoint: GeminiEndpoint) -> None:
    embedder = embedder_at(endpoint)
    await embedder.documents(["what was said"])
    await embedder.query("what is asked")

    documents, query = (request.body["requests"][0] for request in endpoint.requests)
    assert (documents["taskType"], query["taskType"]) == ("RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY")
    assert documents["outputDimensionality"] == query["outputDimensionality"] == 768
    assert endpoint.requests[0].model == "gemini-embedding-001"


async def test_the_second_generation_gets_its_task_in_the_text(endpoint: GeminiEndpoint) -> None:
    embedder = embedder_at(endpoint, gemini_embedding_model="gemini-embedding-2")
    vectors = await embedder.documents(["one", "two"])
    await embedder.query("three")

    assert len(vectors) == 2
    assert [request.texts for request in endpoint.requests] == [
        ["title: none | text: one", "title: none | text: two"],
        ["task: search result | query: three"],
    ]
    assert all("taskType" not in one for request in endpoint.requests for one in request.body["requests"])
    assert embedder.name == "gemini-embedding-2/768"


@pytest.mark.parametrize(
    ("model", "several", "one"),
    [
        ("text-embedding-005", "predict", "predict"),
        ("gemini-embedding-001", "batchEmbedContents", "embedContent"),
        ("gemini-embedding-2", "batchEmbedContents", "embedContent"),
    ],
)
async def test_on_vertex_each_model_is_called_its_own_way(
    endpoint: GeminiEndpoint, model: str, several: str, one: str
) -> None:
    settings = endpoint.settings(
        gemini_embedding_model=model, GOOGLE_GENAI_USE_VERTEXAI=True, GOOGLE_CLOUD_PROJECT="invented"
    )
    client = Client(
        vertexai=True,
        project="invented",
        location="us-east1",
        credentials=Credentials("invented-token"),
        http_options=types.HttpOptions(base_url=endpoint.url),
    )
    usages: list[Usage] = []
    embedder = GeminiEmbedder(client, settings, on_usage=usages.append)

    assert len(await embedder.documents(["a", "b"])) == 2
    assert len(await embedder.query("c")) == 768
    assert [request.method for request in endpoint.requests] == [several, one]
    assert usages[0].prompt_tokens == (18 if model == "text-embedding-005" else 0)


async def test_many_texts_go_in_requests_of_a_hundred(endpoint: GeminiEndpoint) -> None:
    texts = [f"{n:03d}" * (n % 5 + 1) for n in range(230)]
    vectors = await embedder_at(endpoint).documents(texts)

    assert [len(request.texts) for request in endpoint.requests] == [100, 100, 30]
    assert [text for request in endpoint.requests for text in request.texts] == texts
    assert len(vectors) == 230


async def test_no_request_is_larger_than_what_the_model_takes(endpoint: GeminiEndpoint) -> None:
    texts = ["the quick brown fox jumps over the lazy dog. " * 150] * 30
    await embedder_at(endpoint).documents(texts)

    count = EstimatedTokens().count
    for request in endpoint.requests:
        assert sum(map(count, request.texts)) <= 20_000
    assert len(endpoint.requests) > 1


async def test_a_text_is_cut_to_what_the_model_reads(endpoint: GeminiEndpoint) -> None:
    await embedder_at(endpoint).documents(["el zorro marrón salta sobre el perro. " * 5_000])

    assert 1_500 < EstimatedTokens().count(endpoint.requests[0].texts[0]) < 2_048


async def test_echoed_memory_is_not_embedded_and_an_empty_text_is_never_sent(
    endpoint: GeminiEndpoint,
) -> None:
    await embedder_at(endpoint).documents([f"{fence('secret')}what is due?", fence("secret"), "", "\ud83d"])

    assert endpoint.requests[0].texts == ["what is due?", "-", "-", "\ufffd"]


async def test_nothing_to_embed_sends_nothing(endpoint: GeminiEndpoint) -> None:
    assert await embedder_at(endpoint).documents([]) == []
    assert endpoint.requests == []


async def test_an_overloaded_model_is_tried_again(endpoint: GeminiEndpoint) -> None:
    endpoint.script += [failing(429, "RESOURCE_EXHAUSTED"), failing(503, "UNAVAILABLE")]

    assert len(await embedder_at(endpoint).query("again")) == 768


@pytest.mark.parametrize(
    ("failure", "meaning"),
    [
        (failing(429, "RESOURCE_EXHAUSTED"), ModelUnavailable),
        (failing(500, "INTERNAL"), ModelUnavailable),
        (late(Reply(), 1.0), ModelUnavailable),
        (failing(400, "INVALID_ARGUMENT"), ModelRequestInvalid),
        (Reply(body=b'{"embeddings": []}'), ModelAnswerInvalid),
        (Reply(body=b'{"embeddings": [{"values": [1.0, 2.0]}]}'), ModelAnswerInvalid),
        (Reply(body=b'{"embeddings": [{"values": [' + b"0.0," * 767 + b"0.0]}]}"), ModelAnswerInvalid),
    ],
)
async def test_each_failure_has_its_own_error(
    endpoint: GeminiEndpoint, failure: Reply, meaning: type[LaminaError]
) -> None:
    endpoint.otherwise = lambda _: failure
    usages: list[Usage] = []

    with pytest.raises(meaning):
        await embedder_at(endpoint, usages, model_attempts=2, model_timeout_s=0.3).query("hello")

    assert [usage.ok for usage in usages] == [False]


async def test_each_request_is_told_as_usage(endpoint: GeminiEndpoint) -> None:
    usages: list[Usage] = []
    embedder = embedder_at(endpoint, usages)
    await embedder.documents(["a"])
    await embedder.query("b")

    assert [(usage.stage, usage.model, usage.ok) for usage in usages] == [
        ("embed_documents", "gemini-embedding-001", True),
        ("embed_query", "gemini-embedding-001", True),
    ]
