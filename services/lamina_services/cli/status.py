"""`lamina status`: is every part well, and does every stage get its work done?"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from lamina_services.cli.app import command, output
from lamina_services.cli.migrate import DatabaseUrl
from lamina_services.cli.monitoring import MONITORING_URL
from lamina_services.cli.options import HOME, Cloud, ContextUrl, Home, Json
from lamina_services.cli.places import database_url, environment_of, running_stack, stale
from lamina_services.cli.probes import cloud_parts, local_parts, service_part
from lamina_services.cli.vitals import STALLED_IN_THE_CLOUD_S, STALLED_S, Light, Part
from lamina_services.local.home import Home as HomeFolder

EnvLines = Annotated[
    bool,
    typer.Option(
        "--env",
        envvar="LAMINA_STATUS_ENV",
        help="Print the variables that point an agent at the running stack, passwords included, for eval.",
    ),
]
Stalled = Annotated[
    float | None,
    typer.Option(
        "--stalled-after",
        envvar="LAMINA_STATUS_STALLED_S",
        help="Seconds after which a stage counts as dead when work waits and none gets done: "
        f"{STALLED_S:.0f}, or {STALLED_IN_THE_CLOUD_S:.0f} in the cloud; longer for a slow subscription.",
        min=1,
    ),
]
MonitoringUrl = Annotated[
    str,
    typer.Option(envvar="LAMINA_MONITORING_URL", help="Cloud Monitoring, for --cloud."),
]

_STYLES = {Light.GREEN: "green", Light.YELLOW: "yellow", Light.RED: "bold red", Light.UNKNOWN: "magenta"}


@command
async def status(
    *,
    home: Home = HOME,
    context_url: ContextUrl = None,
    cloud: Cloud = False,
    database_url_: DatabaseUrl = None,
    monitoring_url: MonitoringUrl = MONITORING_URL,
    stalled_after: Stalled = None,
    env: EnvLines = False,
    json: Json = False,
) -> None:
    """Show how each part is: servers, services, what waits at each stage and for how long, and dead letters.

    A stage is down, whatever its process says of itself, when work waits and none gets done. Fails with exit
    code 1 while a part is down. With --cloud it asks Cloud Monitoring about GOOGLE_CLOUD_PROJECT, and the
    database where --database-url names it; with --context-url only that service is asked.
    """
    if env:
        for name, value in environment_of(HomeFolder(home).running()).items():
            output().print(f"export {name}={shlex.quote(value)}", markup=False, soft_wrap=True)
        return
    if cloud:
        patience = stalled_after or STALLED_IN_THE_CLOUD_S
        url = database_url(home, database_url_) if database_url_ else None
        parts = await cloud_parts(context_url, url, monitoring_url, patience)
    else:
        running = running_stack(home)
        left_over = running is not None and context_url is not None and stale(context_url, running)
        here = left_over or (running is not None and running.context_url == context_url)
        if context_url and not here:
            parts = [await service_part("context", context_url)]
        else:
            parts = await local_parts(HomeFolder(home), stalled_after or STALLED_S)
    if json:
        output().print_json(data=[asdict(part) for part in parts])
    else:
        _print(parts)
    if any(part.light is Light.RED for part in parts):
        raise typer.Exit(1)


def _print(parts: Sequence[Part]) -> None:
    table = Table(expand=False)
    for column in ("part", "state", "detail"):
        table.add_column(column, overflow="fold")
    for part in parts:
        table.add_row(part.name, f"[{_STYLES[part.light]}]{part.light}[/]", escape(part.detail))
    output().print(table)
