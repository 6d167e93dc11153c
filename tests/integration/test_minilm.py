"""The MiniLM embedder, with the real model."""

import math
import subprocess
import sys

import pytest

from lamina.models.minilm import DIMENSIONS, MiniLmEmbedder
from lamina.ports import Embedder, Vector

LONG_LOG = "\n".join(f"worker {n}: request {n * 7919} took {n % 90} ms, cache {n % 2}" for n in range(400))


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return MiniLmEmbedder()


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_a_vector_is_768_wide_of_length_one_and_zero_past_the_models_width(embedder: Embedder) -> None:
    for vector in await embedder.documents(["I prefer dark mode", "", "🎉 \ud83d \x00", LONG_LOG]):
        assert len(vector) == DIMENSIONS
        assert math.isclose(math.hypot(*vector), 1.0, rel_tol=1e-6)
        assert vector[384:] == [0.0] * 384


async def test_the_same_meaning_is_near_and_another_is_far(embedder: Embedder) -> None:
    dark, dark_again, veto = await embedder.documents(
        [
            "I prefer dark mode in every tool",
            "The user likes a dark theme",
            "Never run migrations against production",
        ]
    )

    assert cosine(dark, dark_again) > 0.45 > cosine(dark, veto) + 0.3


async def test_known_texts_get_the_vectors_of_the_32_bit_model(embedder: Embedder) -> None:
    """Cosines that the original model gives; a wrong tokenizer, pooling or mask moves them."""
    texts = ["How do I reset my password?", "I forgot my password and cannot sign in", "The soup was cold"]
    reset, forgot, soup = await embedder.documents(texts)

    assert cosine(reset, forgot) == pytest.approx(FORGOT, abs=0.02)
    assert cosine(reset, soup) == pytest.approx(SOUP, abs=0.02)


FORGOT, SOUP = 0.792, 0.046


async def test_a_vector_does_not_depend_on_what_else_is_in_the_batch(embedder: Embedder) -> None:
    texts = [
        "short",
        "función() -> None: x = {'a': 1}",
        "tool executions time out after 30 seconds " * 9,
        LONG_LOG,
    ]
    together = await embedder.documents([*texts, *(f"filler {n} " * n for n in range(1, 30))])

    for text, vector in zip(texts, together, strict=False):
        assert vector == pytest.approx((await embedder.documents([text]))[0], abs=1e-6)


async def test_order_is_kept_and_nothing_gives_nothing(embedder: Embedder) -> None:
    texts = ["a long line about invoices and their due dates " * 6, "cat", LONG_LOG, "dog"]

    forward = await embedder.documents(texts)
    backward = await embedder.documents(texts[::-1])

    assert await embedder.documents([]) == []
    for one, other in zip(forward, backward[::-1], strict=True):
        assert one == pytest.approx(other, abs=1e-6)


async def test_what_a_long_text_says_after_its_first_window_counts(embedder: Embedder) -> None:
    filler = "The meeting room is on the second floor. " * 40
    with_fact, without = await embedder.documents(
        [filler + "Renata is allergic to peanuts. " * 12, filler * 2]
    )
    question = await embedder.query("Who has a nut allergy?")

    assert cosine(question, with_fact) > cosine(question, without) + 0.1


async def test_a_query_and_a_document_of_one_text_are_equal(embedder: Embedder) -> None:
    assert await embedder.query("rate limits") == (await embedder.documents(["rate limits"]))[0]


def test_without_the_local_extra_the_error_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from lamina.errors import ConfigurationError\n"
        "from lamina.models.minilm import MiniLmEmbedder\n"
        "try: MiniLmEmbedder()\n"
        "except ConfigurationError as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603 - our own script

    assert "onnxruntime" in answer.stdout
    assert "pip install 'lamina[local]'" in answer.stdout
