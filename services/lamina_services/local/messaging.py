"""The child process for messages: the emulator, its topology and the scheduler's tick.

Together they cost one interpreter with gRPC in it. With PUBSUB_EMULATOR_HOST set, that emulator is used and
ours is not started. Once the topology stands, and every second from then on, a report is written for
`lamina status`.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path

from lamina.errors import DependencyUnavailable, LaminaError
from lamina.pubsub.clients import publisher_client
from lamina.pubsub.publisher import PubSubPublisher
from lamina.settings import load_settings
from lamina.topology import load_topology
from lamina_services.local.pubsub import Emulator, PortUnavailable, StateFileUnusable
from lamina_services.local.scheduler import tick
from lamina_services.local.topics import Topics

REPORT_EVERY_S = 1.0
_PATIENCE_S = 30.0


async def run(port: int, state: Path, report: Path, services: Mapping[str, str], tick_s: float) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as cleanup:
        emulator = None
        if not os.environ.get("PUBSUB_EMULATOR_HOST"):
            emulator = await cleanup.enter_async_context(Emulator(port=port, state_file=state))
            os.environ["PUBSUB_EMULATOR_HOST"] = emulator.endpoint
        await _create_topics(os.environ["PUBSUB_EMULATOR_HOST"], services)
        settings = load_settings()
        publisher = PubSubPublisher(publisher_client(), settings.project, settings.topic_prefix)
        cleanup.push_async_callback(publisher.aclose)
        tasks = [
            asyncio.create_task(tick(publisher, tick_s)),
            asyncio.create_task(_report(emulator, report, settings.topic_prefix)),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _create_topics(endpoint: str, services: Mapping[str, str]) -> None:
    settings = load_settings()
    topics = Topics(endpoint, settings.project, load_topology(), settings.topic_prefix)
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    try:
        while True:
            try:
                return await topics.create(services)
            except DependencyUnavailable:  # an emulator of somebody else's may still be starting
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.2)
    finally:
        await topics.close()


async def _report(emulator: Emulator | None, path: Path, prefix: str) -> None:
    """Write each subscription's counters, and when: none of them where the emulator is not ours."""
    fresh = path.with_suffix(".new")
    began = time.time()
    while True:
        stats = emulator.stats() if emulator else {}
        counters = {
            name.rpartition("/")[2].removeprefix(prefix): dataclasses.asdict(each)
            for name, each in stats.items()
        }
        report = {"written_at": time.time(), "began_at": began, "subscriptions": counters}
        fresh.write_text(json.dumps(report), "utf-8")
        fresh.replace(path)
        await asyncio.sleep(REPORT_EVERY_S)


def main() -> int:
    """Parse the command line and serve."""
    parser = ArgumentParser(prog="python -m lamina_services.local.messaging")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--services", type=json.loads, required=True)
    parser.add_argument("--tick", type=float, required=True)
    options = parser.parse_args()
    try:
        asyncio.run(run(options.port, options.state, options.report, options.services, options.tick))
    except (LaminaError, PortUnavailable, StateFileUnusable) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
