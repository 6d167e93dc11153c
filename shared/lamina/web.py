"""What the HTTP functions share: reading a JSON body, answering, and saying what was wrong."""

from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lamina import strict_json
from lamina.api import Problem
from lamina.envelope import Model, validate
from lamina.errors import InvalidEvent, LaminaError, Permanent, TooLarge

MAX_BODY_BYTES = 20 * 1024 * 1024
"""A wrapped push of Pub/Sub's largest message, in base64, fits."""
MAX_QUESTION_BYTES = 256 * 1024
"""The longest question, every character escaped, fits."""

_TITLES = {
    404: "Not found",
    405: "Method not allowed",
    410: "Forgotten",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid",
    503: "Try again later",
}


class NotJson(Permanent):
    """The body is announced as something else than JSON. Remedy: send `content-type: application/json`."""

    status = 415


class MethodNotAllowed(Permanent):
    """The path takes another method."""

    status = 405

    def __init__(self, path: str, allowed: str) -> None:
        super().__init__(f"{path} takes {allowed}")
        self.allowed = allowed


def path_of(request: Request) -> str:
    """The path, decoded, without a slash at its end. `request.url` would take in the Host header as well."""
    return str(request.scope["path"]).rstrip("/")


def check_json_post(request: Request) -> None:
    """Refuse another method than POST, and another body than plain JSON.

    A browser lets any page post text or a form to a service on its own machine, and asks before it posts
    JSON: the content type keeps strangers' pages from writing memory.
    """
    if request.method != "POST":
        raise MethodNotAllowed(path_of(request), "POST")
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise NotJson(f"content-type: {kind[:80]!r} is not JSON")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise NotJson(f"content-encoding: {coding[:80]!r} is not read: send the body as it is")


def query_of(request: Request) -> Mapping[str, str]:
    """The query's parameters. InvalidEvent where one is given twice: two readers could disagree on it."""
    pairs = request.query_params.multi_items()
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidEvent(["query: a parameter is given twice"])
    return fields


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
    if isinstance(error, MethodNotAllowed):
        response.headers["allow"] = error.allowed
    return response


async def body_of(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """The request's body. TooLarge as soon as it passes the limit, whatever its length header says."""
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise TooLarge(f"the body is over {limit:,} bytes")
            chunks.append(chunk)
    except ClientDisconnect:
        raise InvalidEvent(["body: ended before it was complete"]) from None
    return b"".join(chunks)


async def json_body(request: Request, model: type[Model], limit: int = MAX_BODY_BYTES) -> Model:
    """The body as `model`. InvalidEvent says what is wrong with it."""
    return validate(model, strict_json.loads(await body_of(request, limit)))
