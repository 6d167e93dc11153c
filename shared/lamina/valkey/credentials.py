"""Logs in to Memorystore with this service account's access token."""

import asyncio
from typing import Any, Protocol, cast

import google.auth
import google.auth.exceptions
import google.auth.transport.requests
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as ValkeyConnectionError

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
USER = "default"
"""Memorystore takes the token as the password of this user."""


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


class IamCredentials(CredentialProvider):
    """Gives each new connection a token that is valid now. The token is shared until it nears its end."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = credentials
        self._lock = asyncio.Lock()

    def get_credentials(self) -> tuple[str, str]:
        """User and token; blocks while a token is fetched."""
        try:
            if self._credentials is None:
                self._credentials = _default_credentials()
            if not self._credentials.valid:
                self._credentials.refresh(google.auth.transport.requests.Request())
        except google.auth.exceptions.GoogleAuthError as error:
            raise ValkeyConnectionError(f"no access token: {error}") from error
        return (USER, self._credentials.token or "")

    async def get_credentials_async(self) -> tuple[str, str]:
        """User and token. One connection fetches, the others wait for it."""
        async with self._lock:
            return await asyncio.to_thread(self.get_credentials)


def _default_credentials() -> Credentials:
    library: Any = google.auth  # it carries no types
    return cast(Credentials, library.default(scopes=[SCOPE])[0])
