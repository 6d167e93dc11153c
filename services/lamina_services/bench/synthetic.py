"""Made-up turns: many users, each with a few sessions, statements in them, and a tool call now and then."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from lamina.model import Turn, derived_id

_TOPICS = (
    "the checkout page",
    "the search index",
    "the billing job",
    "the login form",
    "the export report",
    "the image cache",
    "the mail queue",
    "the audit log",
)
_SAID = (
    "I prefer {value} for {topic}.",
    "We decided to use {value} for {topic}.",
    "Never deploy {topic} on a Friday.",
    "How is {topic} doing with {value} today?",
    "{topic} answered slowly again; look at {value} first.",
)
_VALUES = (
    "PostgreSQL",
    "Valkey",
    "FastAPI",
    "gRPC",
    "a nightly batch",
    "Terraform",
    "pytest",
    "OpenTelemetry",
)
_START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def synthetic_turns(count: int, users: int, *, seed: int = 7, run: str = "bench") -> Iterator[Turn]:
    """`count` turns spread evenly over `users`. A seed always gives the same turns; `run` is their app."""
    chance = random.Random(seed)  # noqa: S311 - reproducible data, not secrets
    for number in range(count):
        user, nth = number % users, number // users
        yield Turn.model_validate(
            {
                "app": run,
                "user_id": f"user-{user:03}",
                "session_id": f"session-{user:03}-{nth // 25}",
                "project_id": f"project-{user % 3}",
                "turn_id": str(derived_id("synthetic turn", run, str(seed), str(number))),
                "occurred_at": _START + timedelta(minutes=nth * 7, seconds=user),
                "events": list(_events(chance)),
            }
        )


def _events(chance: random.Random) -> Iterator[dict[str, Any]]:
    topic, value = chance.choice(_TOPICS), chance.choice(_VALUES)
    said = chance.choice(_SAID).format(topic=topic, value=value)
    yield {"author": "user", "content": {"role": "user", "parts": [{"text": said[0].upper() + said[1:]}]}}
    if chance.random() < 0.3:
        call = {"id": "call-1", "name": "read_metrics", "args": {"of": topic}}
        yield {"author": "coder", "content": {"role": "model", "parts": [{"function_call": call}]}}
        rows = [{"minute": minute, "p95_ms": chance.randint(20, 900)} for minute in range(20)]
        answer = {"id": "call-1", "name": "read_metrics", "response": {"rows": rows}}
        yield {"author": "coder", "content": {"role": "user", "parts": [{"function_response": answer}]}}
    text = f"I looked at {topic} with {value} in mind and found {chance.randint(2, 40)} slow requests."
    yield {"author": "coder", "content": {"role": "model", "parts": [{"text": text}]}}
