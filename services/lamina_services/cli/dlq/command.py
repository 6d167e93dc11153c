"""The commands on dead letters."""

import typer

from lamina_services.cli.dlq.export import export
from lamina_services.cli.dlq.looking import list_, show
from lamina_services.cli.dlq.purge import purge
from lamina_services.cli.dlq.replay import replay

dlq = typer.Typer(
    help="Dead letters: what a subscriber could not process, why, and what becomes of it.",
    no_args_is_help=True,
)
dlq.command("list")(list_)
for function in (show, replay, export, purge):
    dlq.command(function.__name__)(function)
