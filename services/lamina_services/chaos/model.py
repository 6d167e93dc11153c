"""A model and embedders that fail as told, for services that run in a process of their own.

`LAMINA_MODEL=lamina_services.chaos.model:flaky`, and `LAMINA_EMBEDDER` with `flaky_minilm` or `flaky_hashes`.
In the environment: LAMINA_CHAOS_RATE (the share of calls that fail), LAMINA_CHAOS_DEADLY (the share in the
middle of which the process dies), LAMINA_CHAOS_SEED (which ones), LAMINA_CHAOS_TALLY (a file that gets a line
for each) and LAMINA_CHAOS_DOWN (while this file exists, every call fails).
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from pathlib import Path

from lamina.api import EntityView
from lamina.errors import ModelAnswerInvalid, ModelRefused, ModelUnavailable
from lamina.event import Speaker
from lamina.model import Kind, Scope, Statement, SummaryLine, Turn
from lamina.models.minilm import MiniLmEmbedder
from lamina.models.offline import OfflineModel
from lamina.ports import Embedder, LanguageModel, OldEpisode, Vector
from lamina.settings import Settings
from lamina.testing.models import HashEmbedder

REFUSED = "[the model refuses to extract this]"
UNREADABLE = "[the model's extraction of this cannot be read]"
UNSTORABLE = "[the model draws a statement from this that no row can hold]"
UNSUMMARISED = "[the model refuses to summarise this]"
"""What a turn's text holds where a call about it never succeeds."""
UNLUCKY = "[the model is overloaded whenever this is extracted]"
"""The same where the first few calls fail: more than the attempts of one delivery."""
UNLUCKY_TRIES = 6

_NO_YEAR_OF_THE_LOG = datetime.fromisoformat("0001-06-01T00:00:00+00:00")


class Chance:
    """Decides which calls fail: the same ones for a seed, and another try of a call is drawn anew."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._rate = float(environment.get("LAMINA_CHAOS_RATE", "0"))
        self._deadly = float(environment.get("LAMINA_CHAOS_DEADLY", "0"))
        self._seed = environment.get("LAMINA_CHAOS_SEED", "0")
        self._tally = environment.get("LAMINA_CHAOS_TALLY", "")
        self._down = environment.get("LAMINA_CHAOS_DOWN", "")
        self._tries: Counter[tuple[str, ...]] = Counter()

    def take(self, call: str, *about: str) -> None:
        """Raise ModelUnavailable where this call is to fail; do not come back where the process is to die."""
        if self._down and Path(self._down).exists():
            raise ModelUnavailable(f"{call}: the model is down")
        self._tries[call, *about] += 1
        key = "|".join((self._seed, call, *about, str(self._tries[call, *about])))
        drawn = random.Random(key).random()  # noqa: S311 - a reproducible choice, not a secret
        if drawn < self._deadly and self._is_the_first(key):
            self._note(f"dies: {call}", key)
            os.kill(os.getpid(), signal.SIGKILL)
        if drawn < self._deadly + self._rate:
            self._note(f"fails: {call}", key)
            raise ModelUnavailable(f"{call}: overloaded, as the seed has it")

    def take_unlucky(self, call: str, *about: str) -> None:
        """Raise ModelUnavailable for the first tries, where anything fails at all."""
        if self._rate and self._tries[call, *about] <= UNLUCKY_TRIES:
            self._note(f"fails: {call}", "|".join((call, *about)))
            raise ModelUnavailable(f"{call}: overloaded, time and again")

    def _is_the_first(self, key: str) -> bool:
        """The next process counts its tries anew, and would die of the same call for ever."""
        return bool(self._tally) and _digest(key) not in Path(self._tally).read_text("utf-8")

    def _note(self, what: str, key: str) -> None:
        if self._tally:
            with Path(self._tally).open("a", encoding="utf-8") as file:
                file.write(f"{what}\t{_digest(key)}\n")


class FlakyModel:
    """A language model whose calls fail now and then, and always for the turns that say so."""

    def __init__(self, inner: LanguageModel, chance: Chance) -> None:
        self.name = inner.name
        self._inner = inner
        self._chance = chance

    async def summarise(
        self, previous: Sequence[SummaryLine], turns: Sequence[Turn], budget: int
    ) -> tuple[SummaryLine, ...]:
        """See `LanguageModel.summarise`."""
        self._chance.take("summarise", *(turn.turn_id for turn in turns))
        if any(_says(turn, UNSUMMARISED) for turn in turns):
            raise ModelRefused("the model refused to summarise a turn")
        return await self._inner.summarise(previous, turns, budget)

    async def extract(self, turn: Turn, known: Sequence[EntityView]) -> tuple[Statement, ...]:
        """See `LanguageModel.extract`."""
        about = ("extract", turn.session.digest, turn.turn_id)
        self._chance.take(*about)
        if _says(turn, UNLUCKY):
            self._chance.take_unlucky(*about)
        if _says(turn, REFUSED):
            raise ModelRefused("the model refused to extract a turn")
        if _says(turn, UNREADABLE):
            raise ModelAnswerInvalid("the model's answer is no list of statements")
        if _says(turn, UNSTORABLE):
            return (_unstorable(turn),)
        return await self._inner.extract(turn, known)

    async def consolidate(self, episodes: Sequence[OldEpisode], budget: int) -> tuple[SummaryLine, ...]:
        """See `LanguageModel.consolidate`."""
        self._chance.take("consolidate", *(str(episode.episode_id) for episode in episodes))
        return await self._inner.consolidate(episodes, budget)


class FlakyEmbedder:
    """An embedder whose calls fail now and then."""

    def __init__(self, inner: Embedder, chance: Chance) -> None:
        self.name = inner.name
        self._inner = inner
        self._chance = chance

    async def warm(self) -> None:
        """See `Embedder.warm`."""
        await self._inner.warm()

    async def documents(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.documents`."""
        self._chance.take("embed", *texts)
        return await self._inner.documents(texts)

    async def query(self, text: str) -> Vector:
        """See `Embedder.query`."""
        self._chance.take("embed a question", text)
        return await self._inner.query(text)


def flaky(_: Settings) -> LanguageModel:
    """The offline model, failing as the environment says."""
    return FlakyModel(OfflineModel(), Chance(os.environ))


def flaky_minilm(_: Settings) -> Embedder:
    """MiniLM, failing as the environment says."""
    return FlakyEmbedder(MiniLmEmbedder(), Chance(os.environ))


def flaky_hashes(_: Settings) -> Embedder:
    """Hashed words as vectors, failing as the environment says: next to no work for a processor."""
    return FlakyEmbedder(HashEmbedder(), Chance(os.environ))


def _digest(key: str) -> str:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _says(turn: Turn, marker: str) -> bool:
    return any(marker in text for event in turn.events for text in event.texts())


def _unstorable(turn: Turn) -> Statement:
    """Valid as a statement; the log takes no such year."""
    return Statement(
        scope=Scope.GLOBAL,
        kind=Kind.FACT,
        subject="the unstorable",
        text="This was said before the log can say when.",
        said_by=Speaker.USER,
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        ordinal=0,
        said_at=_NO_YEAR_OF_THE_LOG,
        language="en",
    )
