"""The generated contracts agree with the models, and the golden examples with both."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lamina import strict_json
from lamina.contracts import documents
from lamina.envelope import Incoming, encode, parse
from lamina.events import PAYLOADS
from lamina.turns import complete_turn

SCHEMAS = Path(__file__).parents[2] / "schemas"


def example(kind: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / "examples" / f"{kind}.json").read_text("utf-8"))


def test_the_folder_holds_exactly_what_the_models_generate() -> None:
    on_disk = {path.name: path.read_text("utf-8") for path in SCHEMAS.glob("*.json")}
    assert on_disk == documents(), "run: python -m lamina.contracts schemas"


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
def test_a_golden_example_fits_its_json_schema(kind: str) -> None:
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(example(kind)["data"])  # pyright: ignore[reportUnknownMemberType] - untyped library


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
def test_a_golden_example_is_read_and_written_again_without_a_difference(kind: str) -> None:
    golden = example(kind)
    payload = parse(Incoming(strict_json.dumps(golden["data"]), golden["attributes"]))
    message = encode(payload)
    assert json.loads(message.data) == golden["data"]
    assert message.attributes == golden["attributes"]
    assert message.ordering_key == golden["ordering_key"]


def test_the_short_form_of_a_turn_becomes_two_events() -> None:
    turn = complete_turn(example("turn.short"))
    assert [(event.author, list(event.texts())) for event in turn.events] == [
        ("user", ["I prefer dark mode."]),
        ("agent", ["Noted."]),
    ]


def test_every_operation_in_the_openapi_document_names_its_refusals() -> None:
    document = json.loads(documents()["openapi.json"])
    for path, operations in document["paths"].items():
        (operation,) = operations.values()
        assert {"200", "405", "422", "503"} <= set(operation["responses"]), path
