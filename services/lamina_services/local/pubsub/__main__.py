"""Runs the emulator alone until it is interrupted. Prints one line with its endpoint once it serves."""

import asyncio
import os
import signal
import sys
from argparse import ArgumentParser

from lamina_services.local.pubsub import Emulator, PortUnavailable, StateFileUnusable


def main() -> int:
    """Parse the command line and serve."""
    env = os.environ
    parser = ArgumentParser(prog="python -m lamina_services.local.pubsub", description="A Pub/Sub emulator.")
    parser.add_argument(
        "--host", default=env.get("LAMINA_PUBSUB_HOST", "127.0.0.1"), help="[env: LAMINA_PUBSUB_HOST]"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=env.get("LAMINA_PUBSUB_PORT", "8085"),
        help="0 picks one [env: LAMINA_PUBSUB_PORT]",
    )
    parser.add_argument(
        "--state",
        default=env.get("LAMINA_PUBSUB_STATE"),
        help="file that keeps messages across restarts [env: LAMINA_PUBSUB_STATE]",
    )
    options = parser.parse_args()
    try:
        asyncio.run(_serve(Emulator(options.port, options.state, host=options.host)))
    except (PortUnavailable, StateFileUnusable) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _serve(emulator: Emulator) -> None:
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    async with emulator:
        sys.stdout.write(f"Pub/Sub emulator listens on {emulator.endpoint}\n")
        sys.stdout.flush()
        await interrupted.wait()


if __name__ == "__main__":
    sys.exit(main())
