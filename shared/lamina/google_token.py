"""Access tokens of this service account: what AlloyDB and Memorystore take as a password."""

import asyncio
from typing import Any, Protocol, cast

import google.auth
import google.auth.exceptions
import google.auth.transport.requests

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

TokenError = google.auth.exceptions.GoogleAuthError
"""What `fetch` raises; the adapters translate it into their driver's own error."""


class Credentials(Protocol):
    """What is used of google-auth's credentials."""

    token: str | None

    @property
    def valid(self) -> bool:
        """Whether the token can still be used; false some minutes before it expires."""
        ...

    def refresh(self, request: Any) -> None:
        """Fetch a new token."""
        ...


class TokenSource:
    """A token that is valid now, shared until it nears its end. `credentials` None: the environment's own."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = credentials
        self._lock = asyncio.Lock()

    def fetch_now(self) -> str:
        """The token; blocks while one is fetched."""
        if self._credentials is None:
            library: Any = google.auth  # it carries no types
            self._credentials = cast(Credentials, library.default(scopes=[SCOPE])[0])
        if not self._credentials.valid:
            self._credentials.refresh(google.auth.transport.requests.Request())
        return self._credentials.token or ""

    async def fetch(self) -> str:
        """The token. One caller fetches, in a thread; the others wait for it."""
        async with self._lock:
            return await asyncio.to_thread(self.fetch_now)
