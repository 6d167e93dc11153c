"""What each call to a model cost, told to whoever wants to know."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Usage:
    """One call. Failed calls are told as well; those that got no answer have zero tokens."""

    stage: str
    """summarise, extract, consolidate, embed_documents or embed_query."""
    model: str
    ok: bool
    """Whether the answer could be used."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    thought_tokens: int = 0
    """Thinking, billed as output."""
    cached_tokens: int = 0
    """The part of the prompt that was read from a cache, billed for less."""

    def billed(self) -> dict[str, int]:
        """Tokens by kind, each counted once: input is what no cache gave."""
        return {
            "input": max(0, self.prompt_tokens - self.cached_tokens),
            "cached": self.cached_tokens,
            "output": self.output_tokens,
            "thought": self.thought_tokens,
        }


OnUsage = Callable[[Usage], None]
"""Takes a usage. Must not block and must not raise."""


def ignore_usage(_: Usage) -> None:
    """Tell nobody."""
