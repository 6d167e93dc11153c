"""JSON as Lamina reads and writes it: exact, ASCII on the wire, and with clear errors for what it is not."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn, cast

from lamina.errors import InvalidEvent

MAX_DEPTH = 200
"""Levels of nesting a value may have. Parsers and databases give up at a few hundred."""


def loads(text: bytes | str) -> Any:
    """The value of a JSON text. InvalidEvent says what is wrong; NaN and Infinity are not JSON.

    Bytes are UTF-8, with or without a byte order mark. An object that gives one name twice is refused: of two
    readers each could take another value for it, and the user whom it names be another one to a gateway.
    """
    try:
        plain = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        return json.loads(
            plain, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except RecursionError:
        raise InvalidEvent(["body: is nested too deeply"]) from None
    except UnicodeDecodeError:
        raise InvalidEvent(["body: is not UTF-8"]) from None
    except ValueError as error:
        raise InvalidEvent([f"body: is not JSON: {error}"]) from None


def dumps(value: Any) -> bytes:
    """Compact JSON. Non-ASCII is escaped, which carries NUL and lone surrogates safely everywhere."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def check_json(value: Any) -> None:
    """ValueError unless JSON can carry the value exactly: its types and numbers, MAX_DEPTH levels at most."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(_values_of(cast("dict[Any, Any]", each)))
            elif isinstance(each, list):
                below.extend(cast("list[Any]", each))
            else:
                _check_scalar(each)
        if not below:
            return
        level = below
    raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")


def _values_of(each: dict[Any, Any]) -> Iterable[Any]:
    if not all(isinstance(name, str) for name in each):
        raise ValueError("holds an object whose names are not all strings")
    return each.values()


def _check_scalar(each: Any) -> None:
    if isinstance(each, float) and not math.isfinite(each):
        raise ValueError("holds a number that JSON cannot carry (infinite or not a number)")
    if each is not None and not isinstance(each, str | int | float):
        kind = type(each).__name__
        raise ValueError(f"holds a {kind}, which is not JSON; pydantic's model_dump(mode='json') makes it so")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has the name {twice[:80]!r} twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
