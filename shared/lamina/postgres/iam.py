"""Logs in to AlloyDB with this service account's access token in place of a password."""

import asyncio
from typing import Any, cast

import google.auth
import google.auth.exceptions
import google.auth.transport.requests
import psycopg

SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class IamLogin:
    """Connection parameters for one new connection, with a token that is valid now.

    The user is part of the database's URL: the service account's e-mail without `.gserviceaccount.com`.
    """

    def __init__(self, credentials: Any = None) -> None:  # google-auth carries no types
        self._credentials = credentials
        self._lock = asyncio.Lock()

    async def __call__(self) -> dict[str, Any]:
        """Password and encryption. One connection fetches a token, the others wait for it."""
        async with self._lock:
            token = await asyncio.to_thread(self._token)
        return {"password": token, "sslmode": "require"}

    def _token(self) -> str:
        try:
            if self._credentials is None:
                library: Any = google.auth
                self._credentials = library.default(scopes=[SCOPE])[0]
            if not self._credentials.valid:
                self._credentials.refresh(google.auth.transport.requests.Request())
        except google.auth.exceptions.GoogleAuthError as error:
            raise psycopg.OperationalError(f"no access token: {error}") from error
        return cast(str, self._credentials.token)
