"""`lamina search`: look through one user's long-term memory."""

from datetime import datetime
from typing import Annotated

import typer

from lamina.errors import ConfigurationError
from lamina.model import Scope
from lamina_services.cli.app import command, notes, output
from lamina_services.cli.options import HOME, App, ContextUrl, Home, Json, Project, User
from lamina_services.cli.places import memory_client
from lamina_services.cli.tables import print_found

Query = Annotated[str, typer.Argument(help="What to look for.", envvar="LAMINA_QUERY")]
Count = Annotated[
    int, typer.Option("-k", "--count", envvar="LAMINA_COUNT", min=1, max=200, help="At most so many.")
]
InScope = Annotated[Scope | None, typer.Option(envvar="LAMINA_SCOPE", help="Only statements of this scope.")]
InSession = Annotated[str | None, typer.Option(envvar="LAMINA_SESSION", help="Only this session.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        envvar="LAMINA_AS_OF", help="Only what held then: a date, or date and time, as 2026-03-01T12:00Z."
    ),
]


@command
async def search(
    *,
    query: Query,
    user: User,
    app: App = "demo",
    count: Count = 10,
    scope: InScope = None,
    project: Project = None,
    session: InSession = None,
    as_of: AsOf = None,
    context_url: ContextUrl = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Search statements and past turns, best first."""
    moment = _moment(as_of)
    async with memory_client(home, context_url) as memory:
        answer = await memory.search(
            app=app,
            user_id=user,
            query=query,
            k=count,
            scope=scope,
            project_id=project,
            session_id=session,
            as_of=moment,
        )
    console = output()
    if json:
        console.print_json(answer.model_dump_json())
        return
    print_found(console, answer.entities, answer.episodes)
    if answer.degraded:
        notes().print(f"[yellow]missing:[/] {', '.join(answer.degraded)}")


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise ConfigurationError(f"--as-of: {text!r} is no date or time such as 2026-03-01T12:00Z") from None
