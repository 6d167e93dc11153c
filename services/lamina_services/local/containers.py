"""The parts of `docker compose up` that Terraform and Cloud Scheduler play in the cloud.

`python -m lamina_services.local.containers topics` creates the topology on PUBSUB_EMULATOR_HOST, once;
`… tick` publishes the scheduler's tick until it is stopped. A service's container has the service's name.
"""

import asyncio
import os
import sys
from argparse import ArgumentParser

from lamina.errors import ConfigurationError, LaminaError
from lamina.pubsub.clients import publisher_client
from lamina.pubsub.publisher import PubSubPublisher
from lamina.settings import Settings, load_settings
from lamina.topology import load_topology
from lamina_services.local.scheduler import tick
from lamina_services.local.topics import Topics


async def create_topics(endpoint: str, settings: Settings) -> None:
    """Create what is missing; doing it again changes nothing."""
    topology = load_topology()
    topics = Topics(endpoint, settings.project, topology, settings.topic_prefix)
    try:
        await topics.create({name: f"http://{name}:{each.port}" for name, each in topology.services.items()})
    finally:
        await topics.close()


async def keep_ticking(endpoint: str, settings: Settings) -> None:
    """Tick as often as the local stack does."""
    publisher = PubSubPublisher(publisher_client(endpoint), settings.project, settings.topic_prefix)
    try:
        await tick(publisher, load_topology().schedule.local_every_s)
    finally:
        await publisher.aclose()


_COMMANDS = {"topics": create_topics, "tick": keep_ticking}


def main() -> int:
    """Parse the command line and run."""
    parser = ArgumentParser(prog="python -m lamina_services.local.containers")
    parser.add_argument("command", choices=_COMMANDS)
    command = _COMMANDS[parser.parse_args().command]
    try:
        settings = load_settings()
        settings.require("project")
        asyncio.run(command(_emulator(), settings))
    except LaminaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _emulator() -> str:
    endpoint = os.environ.get("PUBSUB_EMULATOR_HOST")
    if not endpoint:
        raise ConfigurationError("set PUBSUB_EMULATOR_HOST: on Google Cloud, Terraform creates the topics")
    return endpoint


if __name__ == "__main__":
    sys.exit(main())
