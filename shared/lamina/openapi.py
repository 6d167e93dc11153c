"""The OpenAPI document of the HTTP functions, from their pydantic models and the limits that hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lamina import api
from lamina.envelope import MAX_MESSAGE_BYTES
from lamina.events import TurnPublished
from lamina.model import MAX_IDENTIFIER_BYTES, Turn
from lamina.strict_json import MAX_DEPTH
from lamina.turns import MAX_EVENTS
from lamina.web import MAX_BODY_BYTES, MAX_QUESTION_BYTES

Json = dict[str, Any]

_JSON = "application/json"
_LIMITS = f"""What is refused, in every request:

- an object that gives one name twice; NaN, infinities and numbers that overflow; whole numbers of
  more than 4,300 digits; bytes that are not UTF-8 (a byte order mark is skipped); nesting deeper
  than {MAX_DEPTH} levels;
- names (`app`, `user_id`, `session_id`, `turn_id`, `project_id` …) of more than
  {MAX_IDENTIFIER_BYTES} bytes in UTF-8, or with control characters or lone surrogates;
- times without a zone, written as numbers, or outside the years 1900 to 8999.

A refusal is a problem document (RFC 9457) whose `problems` name each field and what is wrong with
it. Another method than the documented one is answered 405 with `Allow`, another path 404. What is
not HTTP at all, or of a method that HTTP frameworks do not know, is refused by the server before it
gets here, as plain text."""
_TURNS = f"""Takes a turn in full (`events`, in ADK's JSON form) or in short (`user`, `assistant`):
as it is, as `{{"turn": ...}}`, or as the data of a CloudEvent 1.0 in binary or structured mode.
Unknown fields are kept.

Without `turn_id` one is made: from a CloudEvent's source and id, else at random, so that only a
request with one of these is safe to repeat. Without `occurred_at` the earliest event's `timestamp`
stands in, else the CloudEvent's time, else the current one. A turn that is known already is a
duplicate and changes nothing; one of its id with more events is refused, as the first is closed.

At most {MAX_BODY_BYTES:,} bytes of body, {MAX_EVENTS:,} events and {MAX_EVENTS:,} parts in each;
written as ASCII-escaped JSON, the turn must fit a message of {MAX_MESSAGE_BYTES:,} bytes."""
_QUESTION = f"At most {MAX_QUESTION_BYTES:,} bytes of body."

_REFUSALS = {
    "404": "There is no such thing, or it is not this user's",
    "405": "The path takes another method, which `Allow` names",
    "410": "The user had this turn forgotten",
    "413": "The request is too large",
    "415": "The body is not announced as plain JSON: its type is another, or it is compressed",
    "422": "A field is missing or wrong; `problems` names each",
    "503": "A dependency is down; try again",
}
_ALWAYS = ("405", "422", "503")
_WITH_BODY = ("413", "415")
_EVENT_TIME = {
    "type": "string",
    "description": "RFC 3339; one that cannot be read is as if it were not there.",
}


@dataclass(frozen=True)
class _Operation:
    """One path and its one method."""

    path: str
    service: str
    summary: str
    request: type[BaseModel]
    answer: type[BaseModel]
    method: str = "post"
    description: str = ""
    also: Sequence[str] = ()
    """Refusals beyond those that every operation has."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def refusals(self) -> list[str]:
        return sorted({*_ALWAYS, *self.also, *(_WITH_BODY if self.method == "post" else ())})


_OPERATIONS = (
    _Operation(
        "/v1/turns", "turn-ingest", "Record a turn", Turn, api.TurnAccepted, description=_TURNS, also=["410"]
    ),
    _Operation(
        "/v1/context",
        "context",
        "Get the memory for one prompt",
        api.ContextRequest,
        api.ContextResponse,
        description=_QUESTION,
    ),
    _Operation(
        "/v1/search",
        "context",
        "Search entities and episodes",
        api.SearchRequest,
        api.SearchResponse,
        description=_QUESTION,
    ),
    _Operation(
        "/v1/fetch",
        "context",
        "Fetch a part that was cut short",
        api.FetchRequest,
        api.FetchResponse,
        description=_QUESTION,
        also=["404"],
    ),
    _Operation(
        "/v1/turns/{turn_id}/receipt",
        "context",
        "Tell what became of a turn",
        api.ReceiptRequest,
        api.Receipt,
        method="get",
        description="A parameter that is given twice is refused.",
        also=["404"],
    ),
)


def document(version: str) -> Json:
    """The whole of it."""
    models = {model for each in _OPERATIONS for model in (each.request, each.answer)} | {api.Problem}
    keys, schemas = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template="#/components/schemas/{model}",
    )
    parts: Json = schemas["$defs"]
    parameters = parts.pop("ReceiptRequest")
    parts.update(_turn_forms(parts.pop("Turn")))
    references = {model: keys[(model, "validation")] for model in models}
    paths: Json = {}
    for each in _OPERATIONS:
        asked = (
            {"parameters": _parameters(parameters)}
            if each.method == "get"
            else _body(each, references[each.request])
        )
        paths[each.path] = {
            each.method: {
                "operationId": each.name,
                "summary": each.summary,
                "description": each.description,
                "tags": [each.service],
                **asked,
                "responses": {
                    "200": {"description": "Done", "content": _as(_JSON, references[each.answer])},
                    **{status: {"$ref": f"#/components/responses/{status}"} for status in each.refusals},
                },
            }
        }
    problem = _as("application/problem+json", references[api.Problem])
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lamina HTTP functions", "version": version, "description": _LIMITS},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(parts.items())),
            "responses": {
                status: {"description": text, "content": problem} for status, text in _REFUSALS.items()
            },
        },
    }


def _body(operation: _Operation, reference: Json) -> Json:
    if operation.request is not Turn:
        return {"requestBody": {"required": True, "content": _as(_JSON, reference)}}
    content = {
        **_as(_JSON, _named("PublishedTurn")),
        **_as("application/cloudevents+json", _named("TurnEvent")),
    }
    return {"parameters": _event_headers(), "requestBody": {"required": True, "content": content}}


def _turn_forms(turn: Json) -> Json:
    """Each form in which a turn may be posted; `turn` is the schema of a complete one."""
    properties: Json = turn["properties"]
    names = {name: schema for name, schema in properties.items() if name != "events"}
    for name in ("turn_id", "occurred_at"):  # what is left out, or null, is filled in
        names[name] = {"anyOf": [properties[name], {"type": "null"}], "default": None}
    required = [name for name in turn["required"] if name not in ("turn_id", "occurred_at")]
    event: Json = {**properties["events"], "maxItems": MAX_EVENTS}
    text = {"type": ["string", "null"]}
    short = {
        "title": "ShortTurn",
        "description": "A turn of two texts. They become two events.",
        "type": "object",
        "additionalProperties": True,
        "properties": {**names, "user": text, "assistant": text, "events": False},
        "required": [name for name in required if name != "events"],
        "anyOf": [_has_text("user"), _has_text("assistant")],
    }
    attribute = {"type": "string", "minLength": 1}
    return {
        "LongTurn": {
            **turn,
            "title": "LongTurn",
            "properties": {**names, "events": event},
            "required": required,
        },
        "ShortTurn": short,
        "PublishedTurn": {
            "title": "PublishedTurn",
            "anyOf": [_named("LongTurn"), _named("ShortTurn"), _named("WrappedTurn")],
        },
        "WrappedTurn": {
            "title": "WrappedTurn",
            "description": "As the topic carries it.",
            "type": "object",
            "properties": {
                "turn": {"anyOf": [_named("LongTurn"), _named("ShortTurn")]},
                "session_id": False,
            },
            "required": ["turn"],
        },
        "TurnEvent": {
            "title": "TurnEvent",
            "description": "A CloudEvent 1.0 in structured mode.",
            "type": "object",
            "properties": {
                "specversion": {"const": "1.0"},
                "id": attribute,
                "source": attribute,
                "type": {"const": TurnPublished.type},
                "time": _EVENT_TIME,
                "data": _named("PublishedTurn"),
            },
            "required": ["specversion", "id", "source", "type", "data"],
        },
    }


def _has_text(name: str) -> Json:
    return {"properties": {name: {"type": "string"}}, "required": [name]}


def _event_headers() -> list[Json]:
    """A CloudEvent in binary mode: all of the first four, or none."""
    schemas: dict[str, Json] = {
        "ce-specversion": {"const": "1.0"},
        "ce-id": {"type": "string"},
        "ce-source": {"type": "string"},
        "ce-type": {"type": "string", "examples": [TurnPublished.type]},
        "ce-time": _EVENT_TIME,
    }
    said = "Of a CloudEvent in binary mode: `ce-specversion` makes it one, and needs id, source and type."
    return [
        {"name": name, "in": "header", "required": False, "description": said, "schema": schema}
        for name, schema in schemas.items()
    ]


def _parameters(request: Json) -> list[Json]:
    """The fields of a request without a body."""
    return [
        {
            "name": name,
            "in": "path" if name == "turn_id" else "query",
            "required": name in request["required"],
            "schema": schema,
        }
        for name, schema in request["properties"].items()
    ]


def _as(media_type: str, schema: Json) -> Json:
    return {media_type: {"schema": schema}}


def _named(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}
