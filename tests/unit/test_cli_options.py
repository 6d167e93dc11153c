"""Every option can be set in the environment, and the document says so."""

from pathlib import Path
from typing import Any

import pytest
import typer

from lamina_services.cli.main import app
from lamina_services.cli.reference import commands_of, options_of, reference

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"

OPTIONS = [
    pytest.param(option, id=f"{path} {option.opts[0]}")
    for path, command in commands_of(typer.main.get_command(app), "lamina")
    for option in options_of(command)
]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_has_an_environment_variable_and_a_help_text(option: Any) -> None:
    assert str(option.envvar).startswith("LAMINA_")
    assert option.show_envvar
    assert option.help


@pytest.mark.parametrize(("path", "command"), list(commands_of(typer.main.get_command(app), "lamina")))
def test_no_two_options_of_a_command_share_a_variable(path: str, command: Any) -> None:
    variables = [option.envvar for option in options_of(command)]
    assert len(set(variables)) == len(variables), path


def test_the_document_is_what_the_commands_say() -> None:
    assert DOCUMENT.read_text("utf-8") == reference(), "run `make docs`"
