"""What an agent imports: publish turns to the topic, ask for context, search.

async with TurnPublisher.connect("my-project") as turns:
    await turns.publish({"app": "shop", "user_id": "ana", "session_id": "s1",
                         "user": "I prefer dark mode", "assistant": "Noted."})
async with LaminaClient("https://context…run.app") as memory:
    block = (await memory.context(app="shop", user_id="ana", session_id="s1", query="theme?")).prompt
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from lamina.api import (
    ContextRequest,
    ContextResponse,
    FetchRequest,
    FetchResponse,
    Receipt,
    ReceiptRequest,
    SearchRequest,
    SearchResponse,
)
from lamina.envelope import Model, validate
from lamina.errors import DependencyUnavailable, InvalidEvent, NotFound, Permanent
from lamina.events import TurnPublished
from lamina.model import Turn
from lamina.ports import Publisher
from lamina.turns import complete_turn


class TurnPublisher:
    """Publishes turns to the `turns` topic. A publish returns once Pub/Sub has the turn."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    @classmethod
    def connect(cls, project: str, topic_prefix: str = "", *, emulator: str | None = None) -> Self:
        """A publisher for a Google Cloud project; `emulator` or PUBSUB_EMULATOR_HOST redirects it to one.

        ConfigurationError where there is neither an emulator nor a login to Google Cloud.
        """
        from lamina.pubsub.clients import publisher_client
        from lamina.pubsub.publisher import PubSubPublisher

        return cls(PubSubPublisher(publisher_client(emulator), project, topic_prefix))

    async def publish(self, turn: Turn | Mapping[str, Any]) -> Turn:
        """Publish a turn, long or short form. Gives it as published, with `turn_id` and `occurred_at`.

        InvalidEvent and TooLarge are raised before anything is sent. To make a retry safe, set `turn_id`
        or publish the returned turn again: the same id is stored once.
        """
        complete = turn if isinstance(turn, Turn) else complete_turn(turn)
        await self._publisher.publish(TurnPublished(turn=complete))
        return complete

    async def __aenter__(self) -> Self:
        """Use as a context manager."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection to Pub/Sub."""
        close = getattr(self._publisher, "aclose", None)
        if close is not None:
            await close()


class LaminaClient:
    """Asks the context service. `http` may carry authentication; without it a plain one is made."""

    def __init__(
        self, context_url: str, http: httpx.AsyncClient | None = None, timeout_s: float = 10
    ) -> None:
        self._url = context_url.rstrip("/")
        self._http = http or httpx.AsyncClient(timeout=timeout_s)

    async def context(self, request: ContextRequest | None = None, **fields: Any) -> ContextResponse:
        """The memory for one prompt. Takes a ContextRequest, or its fields."""
        return await self._ask("context", request or validate(ContextRequest, fields), ContextResponse)

    async def search(self, request: SearchRequest | None = None, **fields: Any) -> SearchResponse:
        """Ranked entities and episodes of one user. Takes a SearchRequest, or its fields."""
        return await self._ask("search", request or validate(SearchRequest, fields), SearchResponse)

    async def fetch(self, app: str, user_id: str, handle: str) -> FetchResponse:
        """What a context cut short, in full. NotFound where the user has no such part."""
        request = FetchRequest(app=app, user_id=user_id, handle=handle)
        return await self._ask("fetch", request, FetchResponse)

    async def receipt(self, request: ReceiptRequest | None = None, **fields: Any) -> Receipt:
        """What became of a turn. Takes a ReceiptRequest, or its fields: `app`, `user_id`, `turn_id` …

        NotFound where nobody has heard of the turn.
        """
        asked = request or validate(ReceiptRequest, fields)
        query = asked.model_dump(mode="json", exclude_none=True, exclude={"turn_id"})
        # A turn may be called "..": a path that says so in plain text would be another one.
        name = quote(asked.turn_id, safe="").replace(".", "%2E")
        path = f"turns/{name}/receipt"
        return await self._answer("GET", path, Receipt, params=query)

    async def _ask(
        self, path: str, request: ContextRequest | SearchRequest | FetchRequest, answer: type[Model]
    ) -> Model:
        body = request.model_dump(mode="json", exclude_none=True)
        return await self._answer("POST", path, answer, json=body)

    async def _answer(self, method: str, path: str, answer: type[Model], **content: Any) -> Model:
        try:
            response = await self._http.request(method, f"{self._url}/v1/{path}", **content)
        except httpx.HTTPError as error:
            detail = str(error) or type(error).__name__
            raise DependencyUnavailable("context service", f"{self._url}: {detail}") from error
        if response.is_success:
            return answer.model_validate(response.json())
        raise _error(response)

    async def __aenter__(self) -> Self:
        """Use as a context manager."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._http.aclose()


def _error(response: httpx.Response) -> Exception:
    """The error that the service meant."""
    try:
        problems = tuple(response.json()["problems"])
    except (ValueError, KeyError, TypeError):
        problems = (f"HTTP {response.status_code}: {response.text[:200]}",)
    if response.status_code >= 500:
        return DependencyUnavailable("context service", "; ".join(problems))
    if response.status_code == 404:
        return NotFound("; ".join(problems))
    return InvalidEvent(problems) if response.status_code == 422 else Permanent("; ".join(problems))
