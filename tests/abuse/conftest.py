"""One running stack for all the abuse."""

from collections.abc import Iterator

import pytest
import pytest_asyncio

from tests.abuse.stack import Stack, running_stack
from tests.fixtures_postgres import TestDatabase, TestServer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def abused_database(postgres: TestServer) -> TestDatabase:
    """A migrated database of its own: the counts of its tables mean something."""
    return await postgres.create()


@pytest.fixture(scope="session")
def stack(abused_database: TestDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Every service, running."""
    with running_stack(tmp_path_factory.mktemp("abuse"), abused_database) as running:
        yield running
