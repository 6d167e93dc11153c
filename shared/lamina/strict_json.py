"""JSON as Lamina reads and writes it: exact, ASCII on the wire, and with clear errors for what it is not."""

import json
import math
from typing import Any, NoReturn

from lamina.errors import InvalidEvent


def loads(text: bytes | str) -> Any:
    """The value of a JSON text. InvalidEvent says what is wrong; NaN and Infinity are not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise InvalidEvent(["body: is nested too deeply"]) from None
    except UnicodeDecodeError:
        raise InvalidEvent(["body: is not UTF-8"]) from None
    except ValueError as error:
        raise InvalidEvent([f"body: is not JSON: {error}"]) from None


def dumps(value: Any) -> bytes:
    """Compact JSON. Non-ASCII is escaped, which carries NUL and lone surrogates safely everywhere."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
