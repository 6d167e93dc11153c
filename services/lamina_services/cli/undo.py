"""`lamina undo`: bring back what a compaction archived."""

import uuid
from typing import Annotated, Any

import typer

from lamina.postgres.compactions import PostgresCompactions
from lamina.postgres.database import Database
from lamina.settings import Settings
from lamina_services.cli.app import command, output
from lamina_services.cli.migrate import DatabaseUrl
from lamina_services.cli.options import HOME, App, Home, Json, User
from lamina_services.cli.places import database_url
from lamina_services.cli.tables import nothing, plain, table

Compaction = Annotated[
    uuid.UUID | None,
    typer.Argument(help="The compaction; without it the user's are listed.", envvar="LAMINA_COMPACTION"),
]


@command
async def undo(
    *,
    user: User,
    compaction: Compaction = None,
    app: App = "demo",
    home: Home = HOME,
    database_url_: DatabaseUrl = None,
    json: Json = False,
) -> None:
    """Bring back the episodes that a compaction archived, for good, and retire its lines."""
    database = Database(database_url(home, database_url_))
    try:
        compactions = PostgresCompactions(database, Settings.load())
        if compaction is None:
            _print(await compactions.of_user(app, user), json=json)
            return
        back = await compactions.undo(app, user, compaction)
    finally:
        await database.close()
    if json:
        output().print_json(data={"compaction_id": str(compaction), "brought_back": back})
    else:
        output().print(f"{back} episodes are back")


def _print(rows: list[dict[str, Any]], *, json: bool) -> None:
    if json:
        output().print_json(data=rows, default=str)
        return
    shown = table("Compactions", "compaction", "project", "made at", "episodes", "undone at")
    for row in rows:
        cells = (
            row["compaction_id"],
            row["project_id"],
            row["created_at"],
            row["episodes"],
            row["undone_at"],
        )
        shown.add_row(*plain(*("" if cell is None else str(cell) for cell in cells)))
    output().print(shown if rows else nothing("Compactions"))
