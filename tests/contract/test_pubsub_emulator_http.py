"""The HTTP client of the pusher, against endpoints that misbehave; and a push that takes too long."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from lamina_services.local.pubsub.broker import Broker
from lamina_services.local.pubsub.http_client import HttpClient, PushFailed, parse_url
from lamina_services.local.pubsub.journal import Journal
from lamina_services.local.pubsub.pusher import Pusher
from lamina_services.local.pubsub.shapes import new_message, new_subscription, new_topic

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(script: Script) -> AsyncGenerator[tuple[HttpClient, str]]:
    """A client and the URL of a server that runs the script for each connection."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away
        finally:
            writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    client = HttpClient()
    port: int = server.sockets[0].getsockname()[1]
    yield client, f"http://127.0.0.1:{port}/"
    await client.close()
    server.close()
    await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


async def test_connections_are_used_again() -> None:
    connections: list[int] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while True:
            await read_request(reader)
            writer.write(OK)

    async with served(script) as (client, url):
        for _ in range(5):
            assert await client.post(url, [], b"x") == 200
    assert len(connections) == 1


async def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)

    async with served(script) as (client, url):
        for _ in range(5):
            assert await client.post(url, [], b"x") == 200


async def test_a_chunked_answer_and_an_interim_one_are_understood() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
            writer.write(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")

    async with served(script) as (client, url):
        assert [await client.post(url, [], b"x") for _ in range(2)] == [201, 201]


async def test_102_counts_as_the_answer() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await reader.read()

    async with served(script) as (client, url):
        assert await client.post(url, [], b"x") == 102


@pytest.mark.parametrize(
    "answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
)
async def test_a_missing_or_broken_answer_is_a_failure(answer: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)

    async with served(script) as (client, url):
        with pytest.raises((PushFailed, OSError)):
            await client.post(url, [], b"x")


@pytest.mark.parametrize("url", ["ftp://host/", "http:///path", "host:80/path", "http://h\r\nost/"])
def test_what_is_no_http_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not an HTTP URL"):
        parse_url(url)


async def test_a_push_that_takes_longer_than_the_ack_deadline_is_a_nack() -> None:
    arrived: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            arrived.append(await read_request(reader))
            if len(arrived) > 1:
                writer.write(OK)

    async with served(script) as (client, url), asyncio.timeout(10):
        pushers: list[Pusher] = []
        broker = Broker(
            Journal(),
            on_subscription=lambda subscription: pushers.append(Pusher(subscription, client, window=4)),
        )
        topic, name = "projects/p/topics/topic", "projects/p/subscriptions/subscription"
        broker.create_topic(new_topic(name=topic))
        config = new_subscription(
            name=name, topic=topic, ack_deadline_seconds=1, push_config={"push_endpoint": url}
        )
        broker.create_subscription(config)
        broker.publish(topic, [new_message(data=b"x")])
        settled = asyncio.Event()
        subscription = broker.subscription(name)
        subscription.listen(lambda: settled.set() if not subscription.stats().backlog else None)
        await settled.wait()
        assert (subscription.stats().nacked, subscription.stats().acked) == (1, 1)
        broker.close()
        for pusher in pushers:
            await pusher.stop()
    assert len(arrived) == 2
