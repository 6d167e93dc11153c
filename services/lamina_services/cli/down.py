"""`lamina down`: stop the local stack, and clear it away where asked to."""

import asyncio
from typing import Annotated

import typer

from lamina.errors import DependencyUnavailable
from lamina_services.cli.app import command, notes, output
from lamina_services.cli.options import HOME, Home, Json
from lamina_services.local.home import Home as HomeFolder
from lamina_services.local.identity import end_all

Wipe = Annotated[
    bool, typer.Option("--wipe", envvar="LAMINA_WIPE", help="Then delete its data, logs and passwords.")
]


@command
async def down(home: Home = HOME, wipe: Wipe = False, json: Json = False) -> None:
    """Stop the local stack, also what a killed one left behind. Its data stays unless wiped."""
    folder = HomeFolder(home)
    ended = await asyncio.to_thread(_stop, folder, forgiving=wipe)
    if wipe:
        folder.wipe()
    if json:
        output().print_json(data={"stopped": ended, "wiped": wipe})
    else:
        said = f"stopped {', '.join(ended)}" if ended else f"nothing ran under {folder.root}"
        notes().print(said + ("; everything is deleted" if wipe else ""), markup=False, soft_wrap=True)


def _stop(folder: HomeFolder, *, forgiving: bool) -> list[str]:
    """End the supervisor, who ends its children; then whatever is left."""
    state = folder.read_state_or_none() if forgiving else folder.read_state()
    if state is None:
        return []
    ended = end_all([state.supervisor], patience_s=30)
    left = end_all(list(state.children), patience_s=10)
    if any(child.find() for child in state.children):
        raise DependencyUnavailable("the operating system", "some processes would not end")
    folder.forget_state()
    return [*ended, *left]
