"""`lamina up`: keep the local stack running."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lamina_services.cli.app import command, notes, output
from lamina_services.cli.options import HOME, Home, Json, Timeout
from lamina_services.local.home import StackState
from lamina_services.local.stack import Stack

FreePorts = Annotated[
    bool,
    typer.Option(
        "--free-ports", envvar="LAMINA_FREE_PORTS", help="Use any free ports, never the usual ones."
    ),
]
Tick = Annotated[
    float | None,
    typer.Option(
        "--tick-s",
        envvar="LAMINA_TICK_S",
        help="Seconds between the scheduler's ticks, each of which looks for memory to compact.",
        min=1,
    ),
]


@command
async def up(
    home: Home = HOME,
    free_ports: FreePorts = False,
    tick_s: Tick = None,
    timeout_s: Timeout = 60,
    json: Json = False,
) -> None:
    """Start the local stack and keep it running until Ctrl-C.

    PostgreSQL, Valkey, Pub/Sub, a scheduler and every service, on loopback. LAMINA_* settings and model keys
    of the environment reach the services. Where PUBSUB_EMULATOR_HOST names an emulator that answers, that one
    is used.
    """
    progress = timed_progress(notes())
    stop_on_signals()
    with contextlib.suppress(asyncio.CancelledError):
        async with Stack(
            home, preferred_ports=not free_ports, tick_s=tick_s, progress=progress, timeout_s=timeout_s
        ) as stack:
            if json:
                output().print_json(stack.state.model_dump_json())
            else:
                print_places(output(), stack.state, stack.home.root)
            await asyncio.Event().wait()
    progress("stopped")


def stop_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP cancel the command, which then cleans up.

    SIGINT too: a script's background jobs start with it ignored. An ignored SIGHUP is nohup's, and stays.
    """
    task = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if task and (number is signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def timed_progress(console: Console) -> Callable[[str], None]:
    """Says what happens, and when."""
    began = time.monotonic()

    def say(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {escape(what)}")

    return say


def print_places(console: Console, state: StackState, home: object) -> None:
    """Where everything listens. Passwords stay in the state file."""
    table = Table(title="Lamina runs here", title_justify="left")
    table.add_column("part")
    table.add_column("where")
    for name, url in state.services.items():
        table.add_row(name, url)
    table.add_row("Pub/Sub", f"{state.pubsub} (project {state.project})")
    table.add_row("PostgreSQL", state.database_url.rpartition("@")[2])
    table.add_row("Valkey", state.valkey_url.rpartition("@")[2])
    console.print(table)
    console.print(
        f"Data, logs and passwords: {escape(str(home))}. For an agent's environment:", soft_wrap=True
    )
    console.print(f"  export PUBSUB_EMULATOR_HOST={state.pubsub} GOOGLE_CLOUD_PROJECT={state.project}")
    console.print(f"  export LAMINA_CONTEXT_URL={state.context_url}")
    console.print("Ctrl-C stops everything.")
