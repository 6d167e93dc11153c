"""Each new connection to AlloyDB gets a token that is valid now."""

import asyncio
from typing import Any

import google.auth.exceptions
import psycopg
import pytest

from lamina.postgres.iam import IamLogin


class Credentials:
    """google-auth's credentials, as far as they are used."""

    def __init__(self, error: Exception | None = None) -> None:
        self.token: str | None = None
        self.valid = False
        self.refreshed = 0
        self._error = error

    def refresh(self, request: Any) -> None:
        if self._error:
            raise self._error
        self.refreshed += 1
        self.token, self.valid = f"token-{self.refreshed}", True


async def test_a_token_is_fetched_once_for_connections_opened_together() -> None:
    credentials = Credentials()
    login = IamLogin(credentials)
    given = await asyncio.gather(*(login() for _ in range(4)))
    assert given == [{"password": "token-1", "sslmode": "require"}] * 4
    assert credentials.refreshed == 1


async def test_a_token_that_ended_is_replaced() -> None:
    credentials = Credentials()
    login = IamLogin(credentials)
    await login()
    credentials.valid = False
    assert (await login())["password"] == "token-2"


async def test_a_token_that_cannot_be_had_is_a_failed_connection() -> None:
    login = IamLogin(Credentials(google.auth.exceptions.RefreshError("no metadata server")))
    with pytest.raises(psycopg.OperationalError, match="no metadata server"):
        await login()
