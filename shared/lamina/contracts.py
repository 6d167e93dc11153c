"""Generates `schemas/` from the pydantic models: `python -m lamina.contracts schemas`.

JSON Schema for each event, AsyncAPI for the topics, OpenAPI for the HTTP functions. A test fails when
the folder and the models disagree.
"""

import json
import sys
from pathlib import Path
from typing import Any

from lamina import openapi
from lamina.events import PAYLOADS
from lamina.topology import load_topology

VERSION = "1.0.0"


def documents() -> dict[str, str]:
    """Every generated file: its path inside `schemas/`, and its text."""
    files = {f"{kind}.schema.json": _event_schema(kind) for kind in sorted(PAYLOADS)}
    return {
        name: json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        for name, content in {
            **files,
            "asyncapi.json": _asyncapi(),
            "openapi.json": openapi.document(VERSION),
        }.items()
    }


def _event_schema(kind: str) -> dict[str, Any]:
    payload = PAYLOADS[kind]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:lamina:{kind}",
        **payload.model_json_schema(),
    }


def _asyncapi() -> dict[str, Any]:
    topology = load_topology()
    by_topic = {payload.topic: kind for kind, payload in PAYLOADS.items()}
    channels = {
        topic: {
            "address": topic,
            "messages": {by_topic[topic]: {"$ref": f"#/components/messages/{by_topic[topic]}"}},
        }
        for topic in topology.topics
    }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Lamina topics", "version": VERSION},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {
            f"{subscription.name}.receive": {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{subscription.topic}"},
                "description": f"Pushed to {subscription.service}; what fails goes to "
                f"{subscription.dead_letter_topic}.",
            }
            for subscription in topology.subscriptions
        },
        "components": {"messages": {kind: _message(kind) for kind in sorted(PAYLOADS)}},
    }


def _message(kind: str) -> dict[str, Any]:
    return {
        "name": kind,
        "contentType": "application/json",
        "headers": {
            "type": "object",
            "description": "Pub/Sub attributes: CloudEvents 1.0 in binary mode",
            "required": ["ce-specversion", "ce-id", "ce-type", "ce-source"],
            "properties": {
                "ce-specversion": {"const": "1.0"},
                "ce-id": {"type": "string", "format": "uuid", "description": "The same on every delivery"},
                "ce-type": {"const": kind},
                "ce-source": {"type": "string"},
                "ce-traceparent": {"type": "string", "description": "W3C trace context, where there is one"},
                "ce-tracestate": {"type": "string"},
            },
        },
        "payload": {"$ref": f"./{kind}.schema.json"},
    }


def write(folder: Path) -> None:
    """Write every generated file into the folder."""
    for name, text in documents().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
