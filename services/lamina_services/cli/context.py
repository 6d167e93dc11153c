"""`lamina context`: what an agent would be given for its next prompt."""

from typing import Annotated

import typer

from lamina_services.cli.app import command, output
from lamina_services.cli.options import HOME, App, ContextUrl, Home, Json, Project, Session, User
from lamina_services.cli.places import memory_client
from lamina_services.cli.tables import print_context

Question = Annotated[str, typer.Argument(help="What the user just said.", envvar="LAMINA_QUERY")]
Previous = Annotated[
    str | None,
    typer.Option(
        envvar="LAMINA_PREVIOUS_SESSION", help="Its summary is carried over while the session has none."
    ),
]
Budget = Annotated[
    int,
    typer.Option(envvar="LAMINA_TOKEN_BUDGET", help="Tokens the context may take.", min=200, max=1_000_000),
]
MaxEntities = Annotated[
    int, typer.Option(envvar="LAMINA_MAX_ENTITIES", min=0, max=200, help="At most so many.")
]
MaxEpisodes = Annotated[
    int, typer.Option(envvar="LAMINA_MAX_EPISODES", min=0, max=200, help="At most so many.")
]
Deadline = Annotated[
    int,
    typer.Option(
        envvar="LAMINA_DEADLINE_MS",
        min=50,
        max=60_000,
        help="Milliseconds after which the service answers with what it has.",
    ),
]
PromptOnly = Annotated[
    bool,
    typer.Option("--prompt-only", envvar="LAMINA_PROMPT_ONLY", help="Print only the block for the prompt."),
]


@command
async def context(
    *,
    user: User,
    session: Session,
    question: Question = "",
    app: App = "demo",
    project: Project = None,
    previous_session: Previous = None,
    token_budget: Budget = 4_000,
    max_entities: MaxEntities = 20,
    max_episodes: MaxEpisodes = 8,
    deadline_ms: Deadline = 2_000,
    prompt_only: PromptOnly = False,
    context_url: ContextUrl = None,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Show the memory for one prompt: each tier, and the block that goes into the prompt."""
    async with memory_client(home, context_url) as memory:
        answer = await memory.context(
            app=app,
            user_id=user,
            session_id=session,
            project_id=project,
            previous_session_id=previous_session,
            query=question,
            token_budget=token_budget,
            max_entities=max_entities,
            max_episodes=max_episodes,
            deadline_ms=deadline_ms,
        )
    console = output()
    if json:
        console.print_json(answer.model_dump_json())
    elif prompt_only:
        console.print(answer.prompt, markup=False, soft_wrap=True)
    else:
        print_context(console, answer)
