"""Builds the google-genai client from the settings: an API key, or Vertex AI."""

from collections.abc import Sequence
from typing import Protocol, cast

from google.genai import Client, types

from lamina.errors import ConfigurationError
from lamina.settings import Settings

_LONGEST_DELAY_S = 20.0


class Models(Protocol):
    """The two methods of google-genai's async models that Lamina calls, with the types it calls them with."""

    async def generate_content(
        self, *, model: str, contents: str, config: types.GenerateContentConfig
    ) -> types.GenerateContentResponse:
        """Ask for an answer."""
        ...

    async def embed_content(
        self, *, model: str, contents: Sequence[types.Content], config: types.EmbedContentConfig
    ) -> types.EmbedContentResponse:
        """Ask for vectors."""
        ...


def models_of(client: Client) -> Models:
    """The client's async models; their own annotations name types of packages that are not installed."""
    return cast(Models, client.aio.models)


def gemini_client(settings: Settings, *, first_delay_s: float = 1.0) -> Client:
    """A client that tries each request `model_attempts` times, for `model_timeout_s` each.

    Waits `first_delay_s`, then twice as long each time, and up to `first_delay_s` more at random.
    ConfigurationError where there is neither a key nor Vertex settings.
    """
    key = settings.gemini_api_key.get_secret_value()
    options = types.HttpOptions(
        base_url=settings.gemini_base_url,
        timeout=round(settings.model_timeout_s * 1000),
        retry_options=types.HttpRetryOptions(
            attempts=settings.model_attempts,
            initial_delay=first_delay_s,
            max_delay=_LONGEST_DELAY_S,
            exp_base=2.0,
            jitter=first_delay_s,
        ),
    )
    if settings.vertex:
        settings.require("project")
        return Client(
            vertexai=True, project=settings.project, location=settings.location, http_options=options
        )
    if not key:
        raise ConfigurationError(
            "Gemini needs GEMINI_API_KEY, or GOOGLE_GENAI_USE_VERTEXAI=true with GOOGLE_CLOUD_PROJECT"
        )
    return Client(vertexai=False, api_key=key, http_options=options)
