"""The one boundary at which the driver's errors become Lamina's."""

from collections.abc import Generator
from contextlib import contextmanager

from redis.exceptions import RedisClusterException, RedisError

from lamina.errors import DependencyUnavailable


@contextmanager
def translated() -> Generator[None, None, None]:
    """Turn what the driver raises into DependencyUnavailable, the cause chained.

    Everything the server may answer passes with time (loading, read-only after a failover, out of memory,
    a slot that moves) or is an operator's to mend (access denied); no message is at fault, so none is parked.
    """
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        raise DependencyUnavailable("valkey", str(error) or type(error).__name__) from error
