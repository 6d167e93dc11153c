"""What a response of Gemini says of its cost."""

from google.genai import types

from lamina.models.usage import OnUsage, Usage, ignore_usage

__all__ = ["OnUsage", "Usage", "ignore_usage", "usage_of"]


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
