"""All settings, in one frozen object. Every one is an environment variable: `LAMINA_` and its name."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import from_json
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from lamina.errors import ConfigurationError

Positive = Annotated[int, Field(gt=0)]
ModelName = Annotated[str, Field(pattern=r"^(auto|offline|gemini|[\w.]+:\w+)$")]


Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """What a model costs, in USD for a million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Dollars
    output: Dollars = 0.0
    """Thinking is billed as output."""
    cached: Dollars | None = None
    """Input that was read from a cache; None: the same as other input."""

    def of(self, tokens: Mapping[str, int]) -> float:
        """USD for so many tokens of each kind: input, cached, output and thought."""
        cached = self.input if self.cached is None else self.cached
        rates = {"input": self.input, "cached": cached, "output": self.output, "thought": self.output}
        return sum(rates[kind] * count for kind, count in tokens.items()) / 1_000_000


def _parsed(value: object) -> object:
    """JSON where it comes from the environment. The library's own decoding would not name the setting."""
    return from_json(value) if isinstance(value, str) else value


class Settings(BaseSettings):
    """What a deployment decides. Defaults suit production; the local stack sets only endpoints."""

    model_config = SettingsConfigDict(env_prefix="LAMINA_", frozen=True, extra="ignore")

    # Where things are
    project: Annotated[str, Field(validation_alias="GOOGLE_CLOUD_PROJECT")] = ""
    """The Google Cloud project that owns the topics."""
    topic_prefix: str = ""
    """Put before each topic and subscription name, so that two environments can share a project."""
    database_url: SecretStr = SecretStr("")
    """AlloyDB or PostgreSQL 15+ with pgvector 0.8+, as a libpq URL."""
    database_iam: bool = False
    """Log in to AlloyDB with this service account's token in place of a password."""
    database_pool: Positive = 8
    valkey_url: SecretStr = SecretStr("")
    """`valkey://` or `valkeys://` (TLS)."""
    valkey_iam: bool = False
    """Log in to Memorystore with this service account's token."""

    # The buffer and its summary
    buffer_ttl_s: Positive = 7 * 24 * 3600
    """How long a silent session stays in the buffer."""
    summary_trigger_turns: Positive = 10
    """Summarise when the buffer holds this many turns …"""
    summary_trigger_tokens: Positive = 24_000
    """… or this many tokens."""
    summary_keep_turns: Positive = 4
    """How many of the latest turns stay verbatim."""
    summary_budget_tokens: Positive = 2_000

    # Reading
    tool_output_tokens: Positive = 300
    """A context cuts a longer tool output to this, and gives a handle to the rest."""

    # Compaction and retention
    compaction_after_days: Annotated[float, Field(ge=0)] = 30
    compaction_batch: Positive = 200
    """Episode chunks in one round."""
    compaction_min_ratio: Annotated[float, Field(ge=0, le=1)] = 0.02
    """A consolidation shorter than this share of what it would replace is refused."""
    archive_days: Annotated[float, Field(gt=0)] | None = None
    """Delete archived episodes after this; None keeps them (turns are the log, and stay)."""
    session_days: Annotated[float, Field(gt=0)] | None = None
    """Delete session-scoped entities this long after they were last said; None keeps them."""
    processed_days: Annotated[float, Field(gt=7)] = 30
    """Remember processed events this long; must exceed Pub/Sub's retention."""

    # Models
    model: ModelName = "auto"
    """auto: Gemini where a key or Vertex settings are present, else the offline model.

    `package.module:name` is a model of your own: called with the settings, it gives a `LanguageModel`."""
    embedder: ModelName = "auto"
    """The same for vectors: auto, offline, gemini, or a function that gives an `Embedder`."""
    gemini_model: str = "gemini-3.5-flash"
    gemini_embedding_model: str = "gemini-embedding-001"
    gemini_api_key: Annotated[SecretStr, Field(validation_alias="GEMINI_API_KEY")] = SecretStr("")
    gemini_base_url: str | None = None
    vertex: Annotated[bool, Field(validation_alias="GOOGLE_GENAI_USE_VERTEXAI")] = False
    location: Annotated[str, Field(validation_alias="GOOGLE_CLOUD_LOCATION")] = "global"
    model_timeout_s: Annotated[float, Field(gt=0)] = 25
    model_attempts: Positive = 2
    """Tries for each question; with two questions they must fit into an acknowledgement deadline."""
    model_prices: Annotated[dict[str, Price], NoDecode, BeforeValidator(_parsed)] = Field(
        default_factory=dict[str, Price]
    )
    """What models cost, in USD for a million tokens, as JSON:
    `{"gemini-3.5-flash": {"input": 0.3, "cached": 0.03, "output": 2.5}}`. There are no defaults: a model
    without a price is not in the metric of costs."""

    @classmethod
    def load(cls) -> Self:
        """Read the environment. ConfigurationError names every unusable value at once."""
        try:
            return cls()
        except ValidationError as error:
            problems = [_problem(each["loc"], each["msg"]) for each in error.errors()]
            raise ConfigurationError("; ".join(problems)) from None

    def require(self, *names: str) -> None:
        """ConfigurationError that names every one of these settings that is empty."""
        missing = [variable_of(name) for name in names if not _text(getattr(self, name))]
        if missing:
            raise ConfigurationError(f"set {', '.join(missing)}")

    @property
    def model_used(self) -> str:
        """`model` with auto resolved."""
        return self._auto if self.model == "auto" else self.model

    @property
    def embedder_used(self) -> str:
        """`embedder` with auto resolved: it goes with the model, unless that is one of your own."""
        if self.embedder != "auto":
            return self.embedder
        return self._auto if ":" in self.model else self.model_used

    @property
    def _auto(self) -> str:
        return "gemini" if self.vertex or self.gemini_api_key.get_secret_value() else "offline"


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    alias = Settings.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else f"LAMINA_{name.upper()}"


def _text(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value or "")


def _problem(location: tuple[int | str, ...], message: str) -> str:
    name = str(location[0]) if location else ""
    return f"{name if name.isupper() else f'LAMINA_{name.upper()}'}: {message}"


@cache
def load_settings() -> Settings:
    """The process's settings, read once."""
    return Settings.load()
