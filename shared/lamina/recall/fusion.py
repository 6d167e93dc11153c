"""One ranking out of what words and meaning say, and of who said it, when, and where.

Default: the sum of min-max scores. Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009) is here by
name; at equal weights it ranked below words alone on the conversations measured, so it is not the default.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from lamina.event import Speaker
from lamina.recall.timewords import TimeHint

RRF_K = 60


@dataclass(frozen=True)
class Scale:
    """The lowest and highest score over everything that was searched, not only over what was found."""

    low: float = 0.0
    high: float = 0.0

    def normal(self, score: float) -> float:
        """The score between 0 and 1; 0 for all where nothing tells them apart."""
        return (score - self.low) / (self.high - self.low) if self.high > self.low else 0.0


@dataclass(frozen=True)
class Candidate:
    """What ranking knows of one memory."""

    words: float
    """Full-text rank; 0 where no word matches."""
    meaning: float | None
    """Cosine similarity; None without a vector of the question's model."""
    session_id: str
    speaker: Speaker
    at: datetime
    standing: bool = False
    """A preference: it matters whatever the question is about."""
    named: bool = False
    """The question names who said it."""


@dataclass(frozen=True)
class Features:
    """How much each trait adds to a score that lies between 0 and 2."""

    session: float = 0.4
    """Times the mean of the session's three best scores: what surrounds a hit is about the same matter."""
    user: float = 0.05
    """The user said it: most evidence is in what users say."""
    named: float = 0.3
    standing: float = 0.2
    recency: float = 0.1
    """Halves every `half_life_days`: between equals the newer."""
    half_life_days: float = 30.0
    named_date: float = 0.4
    """The question names its date."""
    previous_session: float = 0.4
    """The question speaks of the last session, and it was said there."""


Fusion = Callable[[Sequence[Candidate], Scale, Scale], list[float]]


def min_max(candidates: Sequence[Candidate], words: Scale, meaning: Scale) -> list[float]:
    """The sum of both scores, each brought to 0 … 1. Without a vector, half of the words' score stands in."""
    scores = [words.normal(c.words) for c in candidates]
    return [
        score + (score / 2 if c.meaning is None else meaning.normal(c.meaning))
        for c, score in zip(candidates, scores, strict=True)
    ]


def reciprocal_rank(candidates: Sequence[Candidate], words: Scale, meaning: Scale) -> list[float]:
    """Σ 1 / (60 + rank), brought to 0 … 2 so that features weigh the same."""
    del words, meaning  # ranks need no scale
    scores = [0.0] * len(candidates)
    for ranked in (
        [(c.words, i) for i, c in enumerate(candidates) if c.words > 0],
        [(c.meaning, i) for i, c in enumerate(candidates) if c.meaning is not None],
    ):
        for rank, (_, index) in enumerate(sorted(ranked, key=lambda pair: -pair[0]), start=1):
            scores[index] += (RRF_K + 1) / (RRF_K + rank)
    return scores


FUSIONS: dict[str, Fusion] = {"min_max": min_max, "rrf": reciprocal_rank}


def rank(
    candidates: Sequence[Candidate],
    *,
    words: Scale,
    meaning: Scale,
    now: datetime,
    hint: TimeHint,
    previous_session_id: str | None = None,
    fusion: str = "min_max",
    features: Features | None = None,
) -> list[tuple[int, float]]:
    """(index, score) of each candidate, best first; ties go to the newer."""
    traits = features or Features()
    base = FUSIONS[fusion](candidates, words, meaning)
    sessions = _session_scores(candidates, base)
    scores = [
        score
        + traits.session * sessions[c.session_id]
        + traits.user * (c.speaker is Speaker.USER)
        + traits.named * c.named
        + traits.standing * c.standing
        + traits.recency * _recency(c.at, now, traits.half_life_days)
        + traits.named_date * hint.covers(c.at)
        + traits.previous_session * (hint.previous_session and c.session_id == previous_session_id)
        for c, score in zip(candidates, base, strict=True)
    ]
    order = sorted(range(len(scores)), key=lambda i: (scores[i], candidates[i].at), reverse=True)
    return [(index, scores[index]) for index in order]


def _session_scores(candidates: Sequence[Candidate], scores: Sequence[float]) -> dict[str, float]:
    by_session: defaultdict[str, list[float]] = defaultdict(list)
    for candidate, score in zip(candidates, scores, strict=True):
        by_session[candidate.session_id].append(score)
    return {session: sum(sorted(all_, reverse=True)[:3]) / 3 for session, all_ in by_session.items()}


def _recency(at: datetime, now: datetime, half_life_days: float) -> float:
    age_days = max(0.0, (now - at).total_seconds() / 86_400)
    return 0.5 ** (age_days / half_life_days)
