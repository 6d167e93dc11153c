"""What each call to Gemini cost, told to whoever wants to know."""

from collections.abc import Callable
from dataclasses import dataclass

from google.genai import types


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


OnUsage = Callable[[Usage], None]
"""Takes a usage. Must not block and must not raise."""


def ignore_usage(_: Usage) -> None:
    """Tell nobody."""


def usage_of(stage: str, model: str, response: types.GenerateContentResponse, *, ok: bool) -> Usage:
    """The usage that a response reports."""
    told = response.usage_metadata or types.GenerateContentResponseUsageMetadata()
    return Usage(
        stage=stage,
        model=model,
        ok=ok,
        prompt_tokens=told.prompt_token_count or 0,
        output_tokens=told.candidates_token_count or 0,
        thought_tokens=told.thoughts_token_count or 0,
        cached_tokens=told.cached_content_token_count or 0,
    )
