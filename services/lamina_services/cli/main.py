"""The entry point: every command by its name."""

from lamina_services.cli.app import LaminaApp
from lamina_services.cli.bench import bench
from lamina_services.cli.chaos import chaos
from lamina_services.cli.context import context
from lamina_services.cli.demo.command import demo
from lamina_services.cli.dlq.command import dlq
from lamina_services.cli.down import down
from lamina_services.cli.export import export
from lamina_services.cli.forget import forget
from lamina_services.cli.migrate import migrate
from lamina_services.cli.publish import publish
from lamina_services.cli.rebuild import rebuild
from lamina_services.cli.search import search
from lamina_services.cli.status import status
from lamina_services.cli.trace import trace
from lamina_services.cli.undo import undo
from lamina_services.cli.up import up

app = LaminaApp(
    name="lamina",
    help="Memory for AI agents: run it locally, feed it, ask it. Every option has an environment variable. "
    "LAMINA_DEBUG=1 shows the traceback of an internal error.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for function in (
    up,
    down,
    status,
    demo,
    publish,
    context,
    search,
    trace,
    undo,
    forget,
    export,
    rebuild,
    migrate,
    chaos,
):
    app.command(function.__name__)(function)
app.add_typer(bench, name="bench")
app.add_typer(dlq, name="dlq")

if __name__ == "__main__":
    app()
