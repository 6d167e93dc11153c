"""`lamina migrate`: bring a database up to date, and let services log in."""

from typing import Annotated

import typer

from lamina.errors import ConfigurationError
from lamina.postgres.migrate import grant_login
from lamina.postgres.migrate import migrate as apply_pending
from lamina_services.cli.app import command, output
from lamina_services.cli.options import HOME, Home, Json
from lamina_services.cli.places import database_url

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="LAMINA_DATABASE_URL",
        help="Logs in as the owner of the tables; without it the running local stack's database is used.",
    ),
]
Grants = Annotated[
    list[str] | None,
    typer.Option(
        "--grant",
        envvar="LAMINA_GRANT",
        metavar="ROLE=LOGIN",
        help="Let a login act as a service's role, as in lamina_context=reader. Can be given several times.",
    ),
]


@command
async def migrate(
    home: Home = HOME, database_url_: DatabaseUrl = None, grant: Grants = None, json: Json = False
) -> None:
    """Apply the migrations that a database lacks. Safe to repeat."""
    pairs = [_pair(each) for each in grant or ()]
    url = database_url(home, database_url_)
    applied = await apply_pending(url)
    for role, login in pairs:
        await grant_login(url, role, login)
    if json:
        output().print_json(data={"applied": applied, "granted": [f"{r}={name}" for r, name in pairs]})
    else:
        for name in applied:
            output().print(f"applied {name}", markup=False)
        for role, login in pairs:
            output().print(f"{login} may act as {role}", markup=False)
        if not applied:
            output().print("the database is up to date")


def _pair(text: str) -> tuple[str, str]:
    role, _, login = text.partition("=")
    if not (role and login):
        raise ConfigurationError(f"--grant: {text!r} is not of the form ROLE=LOGIN")
    return role, login
