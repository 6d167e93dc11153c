"""How large and how rough a run is, and what a telling leaves behind."""

from collections import Counter
from dataclasses import dataclass

from lamina_services.chaos.memory import Memory
from lamina_services.chaos.story import Poison


@dataclass(frozen=True)
class Plan:
    """A run."""

    seed: int
    turns: int = 2_000
    sessions: int = 100
    faults: int = 40
    """How often a part is killed or emptied."""
    every_s: float = 3.0
    """Seconds between two of these, about."""
    failing: float = 0.05
    """The share of a model's calls that fail."""
    deadly: float = 0.001
    """The share of them in the middle of which the service dies."""
    vectors: str = "minilm"
    """What embeds: minilm or hashes."""
    timeout_s: float = 180
    """Give up when nothing moves for so many seconds."""


@dataclass(frozen=True)
class Outcome:
    """What a telling left behind."""

    memory: Memory
    parked: Counter[Poison]
    """How often each was parked: at least once."""
    faults: Counter[str]
    replays: int
    """Dead letters that only had bad luck."""
    tries: int
    """How often something had to be said again."""
    took_s: float
