"""What the HTTP functions share: reading a JSON body, answering, and saying what was wrong."""

from starlette.requests import Request
from starlette.responses import Response

from lamina import strict_json
from lamina.api import Problem
from lamina.envelope import Model, validate
from lamina.errors import InvalidEvent, LaminaError, Permanent, TooLarge

MAX_BODY_BYTES = 20 * 1024 * 1024
"""A wrapped push of Pub/Sub's largest message, in base64, fits."""

_TITLES = {
    400: "Bad request",
    404: "Not found",
    410: "Forgotten",
    413: "Too large",
    422: "Invalid",
    503: "Try again later",
}


def json_response(value: object, status: int = 200) -> Response:
    """A JSON answer; non-ASCII is escaped, so that any stored text can be returned."""
    return Response(strict_json.dumps(value), status, media_type="application/json")


def problem(error: LaminaError) -> Response:
    """An error as problem JSON (RFC 9457): 4xx for what the caller must mend, 503 for what will pass."""
    status = error.status if isinstance(error, Permanent) else 503
    problems = error.problems if isinstance(error, InvalidEvent) else (str(error),)
    body = Problem(title=_TITLES.get(status, "Error"), status=status, problems=problems)
    response = json_response(body.model_dump(), status)
    response.headers["content-type"] = "application/problem+json"
    return response


async def body_of(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """The request's body. TooLarge as soon as it passes the limit, whatever its length header says."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"the body is over {limit:,} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def json_body(request: Request, model: type[Model], limit: int = MAX_BODY_BYTES) -> Model:
    """The body as `model`. InvalidEvent says what is wrong with it."""
    return validate(model, strict_json.loads(await body_of(request, limit)))
