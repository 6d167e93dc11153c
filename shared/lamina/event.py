"""One ADK event, kept as the exact JSON value that came in, with a reader's view on top.

Both of ADK's spellings are read (`function_call`, `functionCall`); nothing is ever rewritten.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Self, cast

from pydantic import ConfigDict, RootModel, SkipValidation, field_validator

from lamina.strict_json import check_json

_TOOLS = ("tool", "function")
"""Roles and authors that some frameworks give to what a tool returned."""


_RESPONSE = ("function_response", "functionResponse")


class Speaker(StrEnum):
    """Who said a text. What a tool returned is data: no statement is ever drawn from it."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"


class Event(RootModel[Annotated[dict[str, Any], SkipValidation]]):
    """One event of a turn: who did what. `root` is the JSON object as it was sent."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "type": "object",
            "additionalProperties": True,
            "description": "An event in ADK's own JSON form. Fields not listed here are kept as they are.",
            "properties": {
                "author": {"type": "string"},
                "timestamp": {"description": "Seconds since 1970; what is no number is kept, not read."},
                "content": {
                    "type": ["object", "null"],
                    "properties": {
                        "role": {"description": "`user` or `model`; what is no string is kept, not read."},
                        "parts": {"type": ["array", "null"], "items": {"type": "object"}},
                    },
                },
                "actions": {"description": "Kept, and not read."},
            },
        },
    )

    @field_validator("root", mode="before")
    @classmethod
    def _is_a_json_object(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("an event is a JSON object")  # noqa: TRY004 - pydantic collects ValueErrors
        event = cast(dict[str, Any], value)
        _check_shape(event)
        check_json(event)
        return event

    @classmethod
    def of_text(cls, author: str, role: str, text: str) -> Self:
        """An event that holds one text part."""
        return cls.model_validate({"author": author, "content": {"role": role, "parts": [{"text": text}]}})

    @property
    def author(self) -> str:
        """Who made the event: `user`, or an agent's name."""
        author = self.root.get("author")
        return author if isinstance(author, str) else ""

    @property
    def role(self) -> str:
        """`user`, `model`, or empty."""
        content = self.root.get("content")
        role = cast(dict[str, Any], content).get("role") if isinstance(content, dict) else None
        return role if isinstance(role, str) else ""

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The content's parts, in order, as JSON objects."""
        content = self.root.get("content")
        parts = cast(dict[str, Any], content).get("parts") if isinstance(content, dict) else None
        if not isinstance(parts, list):
            return []
        return [cast(dict[str, Any], p) for p in cast(list[Any], parts) if isinstance(p, dict)]

    @property
    def speaker(self) -> Speaker:
        """Who is behind it. A tool's response often carries the role `user`, and is a tool's all the same."""
        if self.author in _TOOLS or self.role in _TOOLS or any(map(_responds, self.parts)):
            return Speaker.TOOL
        by_user = self.author == "user" or (not self.author and self.role == "user")
        return Speaker.USER if by_user and self.role in ("", "user") else Speaker.AGENT

    def texts(self) -> Iterator[str]:
        """The text parts, without the model's thoughts."""
        for part in self.parts:
            text = part.get("text")
            if isinstance(text, str) and text and not part.get("thought"):
                yield text

    def function_calls(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(part index, call) for each function call."""
        return self._named("function_call", "functionCall")

    def function_responses(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(part index, response) for each function response."""
        return self._named(*_RESPONSE)

    def _named(self, snake: str, camel: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, part in enumerate(self.parts):
            value = _either(part, snake, camel)
            if isinstance(value, dict):
                yield index, cast(dict[str, Any], value)


def _responds(part: dict[str, Any]) -> bool:
    return _either(part, *_RESPONSE) is not None


def _either(part: dict[str, Any], snake: str, camel: str) -> Any:
    """The value under whichever spelling has one."""
    value = part.get(snake)
    return part.get(camel) if value is None else value


def _check_shape(event: dict[str, Any]) -> None:
    content = event.get("content")
    if content is not None and not isinstance(content, dict):
        raise ValueError("content: must be an object or null")
    parts = cast(dict[str, Any], content).get("parts") if content else None
    if parts is not None and not isinstance(parts, list):
        raise ValueError("content.parts: must be a list or null")
    for index, part in enumerate(cast(list[Any], parts or [])):
        if not isinstance(part, dict):
            raise ValueError(f"content.parts[{index}]: must be an object")  # noqa: TRY004 - see above
    if not isinstance(event.get("author", ""), str):
        raise ValueError("author: must be a string")  # noqa: TRY004 - see above
