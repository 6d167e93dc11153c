"""Logs in to Memorystore with this service account's access token."""

from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as ValkeyConnectionError

from lamina.google_token import Credentials, TokenError, TokenSource

USER = "default"
"""Memorystore takes the token as the password of this user."""


class IamCredentials(CredentialProvider):
    """Gives each new connection a token that is valid now."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._tokens = TokenSource(credentials)

    def get_credentials(self) -> tuple[str, str]:
        """User and token; blocks while a token is fetched."""
        try:
            return (USER, self._tokens.fetch_now())
        except TokenError as error:
            raise ValkeyConnectionError(f"no access token: {error}") from error

    async def get_credentials_async(self) -> tuple[str, str]:
        """User and token."""
        try:
            return (USER, await self._tokens.fetch())
        except TokenError as error:
            raise ValkeyConnectionError(f"no access token: {error}") from error
