"""What only the buffer on Valkey promises: its keys, their lifetime, its cost, and how it fails."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import google.auth.exceptions
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.crc import key_slot

from lamina.errors import ConfigurationError, DependencyUnavailable
from lamina.forgetting import Tombstone
from lamina.valkey.buffer import TOMBSTONE_TTL_S, ValkeyBuffer, session_keys, tombstones_keys
from lamina.valkey.client import connect
from lamina.valkey.credentials import IamCredentials
from tests.contract.test_buffer import a_session, a_summary, a_turn, ids, piece
from tests.fixtures_valkey import start_valkey, valkey_url

__all__ = ["valkey_url"]

TTL_S = 600


@pytest_asyncio.fixture
async def server(valkey_url: str) -> AsyncIterator[Any]:
    """The bare server, to look behind the buffer."""
    client = connect(valkey_url)
    assert isinstance(client, Redis)
    yield client
    await client.aclose()


@pytest_asyncio.fixture
async def buffer(server: Any) -> ValkeyBuffer:
    return ValkeyBuffer(server, TTL_S)


# --- keys ------------------------------------------------------------------------------------------


async def test_a_session_has_exactly_four_keys_in_one_slot(buffer: ValkeyBuffer, server: Any) -> None:
    session = a_session()
    await buffer.append(a_turn(session, 1))
    await buffer.append(a_turn(session, 2))
    await buffer.trim(session, ["t1"], a_summary(session, 1))
    found = [key.decode() async for key in server.scan_iter(match=f"*{session.digest}*")]
    assert sorted(found) == sorted(session_keys(session))
    assert len({key_slot(key.encode()) for key in found}) == 1


async def test_no_key_lacks_a_ttl_and_every_write_refreshes_all_of_them(
    buffer: ValkeyBuffer, server: Any
) -> None:
    session = a_session()

    async def check() -> None:
        for key in session_keys(session):
            if await server.exists(key):
                assert TTL_S * 900 < await server.pttl(key) <= TTL_S * 1000, key
                await server.persist(key)

    turn = a_turn(session, 1, [{"n": 0}, {"n": 1}])
    await buffer.append(piece(turn, 0, 1), close=False)
    await check()
    await buffer.append(turn)
    await check()
    await buffer.append(turn)
    await check()
    await buffer.append(a_turn(session, 2))
    await buffer.trim(session, ["t1"], a_summary(session, 1))
    await check()
    await buffer.append(turn)
    await check()
    await buffer.trim(session, ["t2"], a_summary(session, 2))
    await check()


async def test_a_session_that_lost_one_of_its_keys_counts_as_lost_and_begins_again(
    buffer: ValkeyBuffer, server: Any
) -> None:
    for kind in range(3):  # order, meta, events: the server evicts keys one by one
        session = a_session()
        for number in range(3):
            await buffer.append(a_turn(session, number))
        await buffer.trim(session, ["t0"], a_summary(session, 1))
        await server.delete(session_keys(session)[kind])
        view = await buffer.read(session)
        assert (view.known, view.turns, view.summary) == (False, (), a_summary(session, 1))
        assert not (await buffer.append(a_turn(session, 5))).duplicate
        view = await buffer.read(session)
        assert (view.known, ids(view.turns), view.summary) == (True, ["t5"], None)


async def test_a_summary_in_a_form_of_a_later_release_is_ignored(buffer: ValkeyBuffer, server: Any) -> None:
    session = a_session()
    await buffer.append(a_turn(session, 1))
    await server.set(session_keys(session)[3], '7 {"version": 7, "shape": "new"}')
    assert (await buffer.read(session)).summary is None
    assert not await buffer.trim(session, ["t1"], a_summary(session, 6)), "its version still counts"


# --- cost ------------------------------------------------------------------------------------------


async def commands(server: Any) -> dict[str, int]:
    stats = await server.info("commandstats")
    return {name.removeprefix("cmdstat_"): counts["calls"] for name, counts in stats.items()}


async def test_a_read_costs_what_it_returns_and_an_append_what_it_adds(
    buffer: ValkeyBuffer, server: Any
) -> None:
    session = a_session()
    many = [a_turn(session, n) for n in range(5_000)]
    for start in range(0, len(many), 50):
        await asyncio.gather(*(buffer.append(turn) for turn in many[start : start + 50]))
    before = await commands(server)
    view = await buffer.read(session, last=20)
    between = await commands(server)
    await buffer.append(a_turn(session, 5_000))
    after = await commands(server)
    assert ids(view.turns) == [f"t{n}" for n in range(4_980, 5_000)]
    assert sum(between.values()) - sum(before.values()) < 60, "two look-ups a turn, and a few more"
    assert sum(after.values()) - sum(between.values()) < 25


async def test_a_turn_of_thousands_of_events_is_read_and_trimmed_whole(
    buffer: ValkeyBuffer, server: Any
) -> None:
    turn = a_turn(a_session(), 1, [{"n": n} for n in range(9_001)])
    await buffer.append(turn)
    assert (await buffer.append(turn)).closed == turn
    assert (await buffer.read(turn.session)).turns == (turn,)
    await buffer.append(a_turn(turn.session, 2))
    await buffer.trim(turn.session, ["t1"], a_summary(turn.session, 1))
    assert await server.hlen(session_keys(turn.session)[2]) == 1


# --- failing ---------------------------------------------------------------------------------------


async def test_a_server_that_forgot_the_scripts_gets_them_again(buffer: ValkeyBuffer, server: Any) -> None:
    session = a_session()
    await server.script_flush()
    await buffer.append(a_turn(session, 1))
    await server.script_flush()
    await buffer.trim(session, ["t1"], a_summary(session, 1))
    await server.script_flush()
    assert (await buffer.read(session)).known


async def test_a_server_that_is_not_there_is_a_transient_failure(tmp_path: Path) -> None:
    valkey = start_valkey(tmp_path)
    adapter = ValkeyBuffer(connect(f"valkey://127.0.0.1:{valkey.port}"), TTL_S)
    session = a_session()
    await adapter.append(a_turn(session, 1))
    valkey.stop()
    for call in (
        adapter.append(a_turn(session, 2)),
        adapter.read(session),
        adapter.trim(session, [], a_summary(session, 1)),
        adapter.ping(),
    ):
        with pytest.raises(DependencyUnavailable, match="valkey is unavailable") as caught:
            await call
        assert caught.value.__cause__ is not None
    await adapter.aclose()


async def test_a_frozen_server_is_given_up_in_time_and_answers_the_right_questions_once_it_thaws(
    tmp_path: Path,
) -> None:
    valkey = start_valkey(tmp_path)
    client: Any = connect(f"valkey://127.0.0.1:{valkey.port}")
    adapter = ValkeyBuffer(client, TTL_S)
    sessions = [a_session() for _ in range(4)]
    for number, session in enumerate(sessions):
        await adapter.append(a_turn(session, number))
    pid = (await client.info("server"))["process_id"]
    await asyncio.gather(*(adapter.read(session) for session in sessions))  # as many connections
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(12):
            calls = [adapter.read(sessions[0]), adapter.append(a_turn(sessions[1], 9)), adapter.ping()]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [type(outcome) for outcome in outcomes] == [DependencyUnavailable] * 3
    views = await asyncio.gather(*(adapter.read(session) for session in sessions))
    assert [view.turns[0].turn_id for view in views] == [f"t{number}" for number in range(4)]
    await adapter.aclose()
    valkey.stop()


async def test_a_replica_after_a_failover_is_a_transient_failure_but_still_reads(tmp_path: Path) -> None:
    valkey = start_valkey(tmp_path)
    client: Any = connect(f"valkey://127.0.0.1:{valkey.port}")
    adapter, session = ValkeyBuffer(client, TTL_S), a_session()
    await adapter.append(a_turn(session, 1))
    await client.replicaof("127.0.0.1", "1")
    with pytest.raises(DependencyUnavailable):
        await adapter.append(a_turn(session, 2))
    assert ids((await adapter.read(session)).turns) == ["t1"]
    await adapter.aclose()
    valkey.stop()


async def test_a_full_server_refuses_appends_before_it_writes_and_still_trims(tmp_path: Path) -> None:
    valkey = start_valkey(tmp_path, **{"maxmemory-policy": "noeviction"})
    client: Any = connect(f"valkey://127.0.0.1:{valkey.port}")
    adapter, session = ValkeyBuffer(client, TTL_S), a_session()
    await adapter.append(a_turn(session, 1))
    await adapter.trim(session, [], a_summary(session, 0))  # both scripts are loaded
    await client.config_set("maxmemory", "1")
    with pytest.raises(DependencyUnavailable):
        await adapter.append(a_turn(session, 2, [{"n": n} for n in range(100)]))
    assert ids((await adapter.read(session)).turns) == ["t1"]
    assert await adapter.trim(session, ["t1"], a_summary(session, 1))
    assert (await adapter.read(session)).turns == ()
    await adapter.aclose()
    valkey.stop()


@pytest.mark.parametrize("url", ["", "http://host:1", "valkey://", "valkey://host:port", "valkey://h?db=x"])
def test_a_url_that_cannot_be_used_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="LAMINA_VALKEY_URL"):
        connect(url)


# --- logging in with a token -----------------------------------------------------------------------


class FakeCredentials:
    """Each refresh gives another token; `valid` is the test's to set."""

    def __init__(self, failing: bool = False) -> None:
        self.token: str | None = None
        self.valid = False
        self.refreshes = 0
        self._failing = failing

    def refresh(self, request: Any) -> None:
        if self._failing:
            raise google.auth.exceptions.RefreshError("the metadata server is away")
        self.refreshes += 1
        self.token, self.valid = f"token-{self.refreshes}", True


async def test_a_token_is_shared_by_connections_and_fetched_again_when_it_nears_its_end() -> None:
    credentials = FakeCredentials()
    iam = IamCredentials(credentials)
    first = await asyncio.gather(*(iam.get_credentials_async() for _ in range(20)))
    assert set(first) == {("default", "token-1")}
    credentials.valid = False
    assert await iam.get_credentials_async() == ("default", "token-2")


async def test_a_new_connection_logs_in_with_the_token(tmp_path: Path) -> None:
    valkey = start_valkey(tmp_path)
    operator: Any = connect(f"valkey://127.0.0.1:{valkey.port}")
    await operator.config_set("requirepass", "token-1")
    await operator.aclose()
    stranger = ValkeyBuffer(connect(f"valkey://127.0.0.1:{valkey.port}"), TTL_S)
    with pytest.raises(DependencyUnavailable):
        await stranger.ping()
    client = connect(f"valkey://127.0.0.1:{valkey.port}", IamCredentials(FakeCredentials()))
    adapter = ValkeyBuffer(client, TTL_S)
    await adapter.ping()
    await adapter.aclose()
    valkey.stop()


async def test_no_token_is_a_transient_failure(valkey_url: str) -> None:
    adapter = ValkeyBuffer(connect(valkey_url, IamCredentials(FakeCredentials(failing=True))), TTL_S)
    with pytest.raises(DependencyUnavailable, match="no access token"):
        await adapter.ping()
    await adapter.aclose()


async def test_a_users_tombstones_are_kept_far_longer_than_a_session_and_not_for_ever(
    buffer: ValkeyBuffer, server: Any
) -> None:
    user = f"user-{uuid.uuid4()}"
    at = datetime(2026, 3, 1, tzinfo=UTC)
    stones = [
        Tombstone(scope="user", forgotten_at=at),
        Tombstone(scope="turn", owner="s1", name="t1", forgotten_at=at),
    ]
    await buffer.entomb("shop", user, stones)
    for key in tombstones_keys("shop", user):
        assert TTL_S < TOMBSTONE_TTL_S - 60 < await server.ttl(key) <= TOMBSTONE_TTL_S
