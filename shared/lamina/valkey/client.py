"""Builds the driver's client from a URL. The only module that knows its options."""

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.credentials import CredentialProvider

from lamina.errors import ConfigurationError
from lamina.settings import Settings

Client = Redis | RedisCluster

_SCHEMES = {"valkey": "redis", "valkeys": "rediss", "redis": "redis", "rediss": "rediss"}
_CONNECT_TIMEOUT_S = 2.0
_ANSWER_TIMEOUT_S = 2.0
_POOL = 64
_POOL_WAIT_S = 2.0
_HEALTH_CHECK_S = 30
_RETRIES = 1


def valkey_client(settings: Settings) -> Client:
    """The client that the settings describe."""
    login = None
    if settings.valkey_iam:
        from lamina.valkey.credentials import IamCredentials  # noqa: PLC0415 - google-auth loads slowly

        login = IamCredentials()
    return connect(settings.valkey_url.get_secret_value(), login)


def connect(url: str, login: CredentialProvider | None = None) -> Client:
    """A client for `valkey://user:password@host:port/db`; `valkeys://` speaks TLS. Connects on first use.

    In the query, `cluster=true` is for a server in cluster mode and `ssl_ca_certs=<file>` names the
    server's certificate authority. ConfigurationError where the URL cannot be used.
    """
    address, cluster = _address(url)
    options: dict[str, Any] = {
        "socket_connect_timeout": _CONNECT_TIMEOUT_S,
        "socket_timeout": _ANSWER_TIMEOUT_S,
        "socket_keepalive": True,
        "health_check_interval": _HEALTH_CHECK_S,
        # Every script of the buffer may run twice, so a broken connection is simply tried again.
        "retry": Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.2), _RETRIES),
    }
    if login:
        options["credential_provider"] = login
    try:
        if cluster:
            return RedisCluster.from_url(address, **options)
        pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType] - untyped kwargs
            address, max_connections=_POOL, timeout=_POOL_WAIT_S, **options
        )
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"LAMINA_VALKEY_URL: {error}") from error
    return Redis.from_pool(pool)


def _address(url: str) -> tuple[str, bool]:
    """The URL in the driver's spelling, and whether it names a cluster."""
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise ConfigurationError("LAMINA_VALKEY_URL: must be valkey://host:port or valkeys://host:port")
    query = dict(parse_qsl(parts.query))
    cluster = query.pop("cluster", "").lower() in ("1", "true", "yes")
    return parts._replace(scheme=scheme, query=urlencode(query)).geturl(), cluster
