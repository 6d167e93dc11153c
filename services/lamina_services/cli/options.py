"""The options that several commands take. Each one can also be set in the environment."""

from pathlib import Path
from typing import Annotated

import typer

from lamina_services.local.home import DEFAULT_HOME

Home = Annotated[
    Path, typer.Option(envvar="LAMINA_HOME", help="Folder that holds the local stack's data, logs and state.")
]
HOME = DEFAULT_HOME

Json = Annotated[bool, typer.Option("--json", envvar="LAMINA_JSON", help="Print JSON for programs.")]

ContextUrl = Annotated[
    str | None,
    typer.Option(
        envvar="LAMINA_CONTEXT_URL", help="The context service; without it the running local stack's is used."
    ),
]
Cloud = Annotated[
    bool,
    typer.Option(
        "--cloud",
        envvar="LAMINA_CLOUD",
        help="Use what the environment names (GOOGLE_CLOUD_PROJECT, LAMINA_*) even while a local stack runs.",
    ),
]

App = Annotated[str, typer.Option(envvar="LAMINA_APP", help="The application the memory belongs to.")]
User = Annotated[str, typer.Option(envvar="LAMINA_USER", help="The user the memory belongs to.")]
Session = Annotated[str, typer.Option(envvar="LAMINA_SESSION", help="The session that asks.")]
Project = Annotated[
    str | None,
    typer.Option(envvar="LAMINA_PROJECT_ID", help="The project; its memory is added to the global one."),
]
Timeout = Annotated[
    float, typer.Option(envvar="LAMINA_TIMEOUT_S", help="Seconds that each part may take to start.", min=1)
]
