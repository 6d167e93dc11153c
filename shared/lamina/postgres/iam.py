"""Logs in to AlloyDB with this service account's access token in place of a password."""

from typing import Any

import psycopg

from lamina.google_token import Credentials, TokenError, TokenSource


class IamLogin:
    """Connection parameters for one new connection, with a token that is valid now.

    The user is part of the database's URL: the service account's e-mail without `.gserviceaccount.com`.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._tokens = TokenSource(credentials)

    async def __call__(self) -> dict[str, Any]:
        """Password and encryption."""
        try:
            return {"password": await self._tokens.fetch(), "sslmode": "require"}
        except TokenError as error:
            raise psycopg.OperationalError(f"no access token: {error}") from error
