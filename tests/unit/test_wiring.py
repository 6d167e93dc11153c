"""Which models the settings choose."""

from typing import Any

import pytest

from lamina.errors import ConfigurationError
from lamina.models.offline import OfflineModel
from lamina.settings import Settings
from lamina.telemetry import ObservedEmbedder, ObservedModel
from lamina.testing.models import HashEmbedder, ScriptedModel
from lamina.wiring import Wiring


def scripted(_: Settings) -> ScriptedModel:
    return ScriptedModel(name="own/1")


def settings(**fields: Any) -> Settings:
    return Settings.model_validate({"model": "auto", **fields})


@pytest.mark.parametrize(
    ("fields", "model", "embedder"),
    [
        ({}, "offline", "offline"),
        ({"GEMINI_API_KEY": "k"}, "gemini", "gemini"),
        ({"GEMINI_API_KEY": "k", "model": "offline"}, "offline", "offline"),
        ({"GEMINI_API_KEY": "k", "model": "own.models:fast"}, "own.models:fast", "gemini"),
        ({"model": "own.models:fast"}, "own.models:fast", "offline"),
        ({"model": "gemini", "embedder": "offline"}, "gemini", "offline"),
    ],
)
def test_the_embedder_goes_with_the_model_unless_it_is_named(
    fields: dict[str, Any], model: str, embedder: str
) -> None:
    chosen = settings(**fields)
    assert (chosen.model_used, chosen.embedder_used) == (model, embedder)


def test_a_deployment_may_bring_a_model_of_its_own() -> None:
    parts = Wiring(settings(model=f"{__name__}:scripted", embedder="lamina.testing.models:HashEmbedder"))
    assert parts.model.name == "own/1"
    assert isinstance(parts.embedder, ObservedEmbedder)
    assert isinstance(parts.embedder.embedder, HashEmbedder)
    offline = Wiring(settings(model="offline")).model
    assert isinstance(offline, ObservedModel)
    assert isinstance(offline.model, OfflineModel)


def test_a_model_that_cannot_be_imported_is_a_mistake_of_the_deployment() -> None:
    with pytest.raises(ConfigurationError, match=r"LAMINA_MODEL: 'nowhere\.at:all'"):
        _ = Wiring(settings(model="nowhere.at:all")).model
