"""What the OpenAPI document says is what the functions do, for data that fits it and data that does not.

LAMINA_ABUSE_EXAMPLES asks for more examples of each operation than the suite has time for.
"""

# Schemathesis is typed only in part: what it gives is generic over what it leaves open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false, reportAttributeAccessIssue=false

import os
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import unquote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from lamina.openapi import document
from tests.abuse.stack import Stack

EXAMPLES = int(os.environ.get("LAMINA_ABUSE_EXAMPLES", "60"))
SCHEMA = schemathesis.openapi.from_dict(document("1.0.0"))
OPERATIONS = {
    operation.label: operation for result in SCHEMA.get_all_operations() for operation in [result.ok()]
}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BEYOND_JSON_SCHEMA = (
    "bytes in UTF-8",
    "a lone surrogate",
    "less than 9000",
    "or equal to 1900",
    "binary mode",
    "cannot grow",
    "is not lamina.turn.published.v1",
)
"""Limits that the document tells in words: data may fit its schemas and break them."""


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        yield made


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
def test_the_document_is_true(
    stack: Stack, session: requests.Session, label: str, mode: GenerationMode
) -> None:
    operation = OPERATIONS[label]
    service = "turn-ingest" if label == "POST /v1/turns" else "context"

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        phases=[Phase.generate],
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        assume("\n" not in unquote(case.formatted_path))  # the framework routes no such path
        patient(case.query)
        patient(case.body)
        response = case.call(base_url=str(stack.http[service].base_url), session=session)
        checks = [*CHECKS, *([negative_data_rejection] if mode is GenerationMode.NEGATIVE else [])]
        case.validate_response(response, checks=checks)
        if mode is GenerationMode.POSITIVE and response.status_code not in (200, 404):
            assert told_in_words(response.json()), response.text

    ask()
    stack.still_serves()


def patient(fields: Any) -> None:
    """A deadline too short to keep is answered 503, as documented: that says nothing of the data."""
    if not isinstance(fields, dict):
        return
    asked = cast("dict[str, Any]", fields).get("deadline_ms")
    if isinstance(asked, int) and not isinstance(asked, bool) and 50 <= asked <= 60_000:
        fields["deadline_ms"] = 60_000


def told_in_words(problem: dict[str, Any]) -> bool:
    return any(limit in line for line in problem["problems"] for limit in BEYOND_JSON_SCHEMA)
