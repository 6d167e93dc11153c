"""Writes docs/cli.md from the commands themselves: `python -m lamina_services.cli.reference [FILE]`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

_HEADING = """# The `lamina` command

Generated from the commands (`make docs`); a test fails where the two differ. Every option can also be set
in the environment, by the variable beside it. A mistake is one line on stderr: exit code 1 where something
failed, 2 where the command line was wrong. Exit code 70 is an internal error, a defect of Lamina: the
variable `LAMINA_DEBUG=1` shows its traceback, with exit code 1. An interrupted command ends with 130.
"""


def reference() -> str:
    """The whole document."""
    from lamina_services.cli.main import app  # noqa: PLC0415 - importing a module must not build the app

    return "\n".join([_HEADING, *_sections(typer.main.get_command(app), "lamina")])


def options_of(command: Any) -> list[Any]:
    """A command's options, less --help."""
    return [each for each in command.params if each.param_type_name == "option" and each.name != "help"]


def commands_of(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its full name, groups walked through."""
    children: dict[str, Any] = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from commands_of(child, f"{path} {name}")


def _sections(root: Any, name: str) -> Iterator[str]:
    for path, command in commands_of(root, name):
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        shown = " ".join(_shown(each) for each in arguments)
        yield f"## {path}\n\n{_paragraphs(command.help)}\n\n```\n{f'{path} [options] {shown}'.strip()}\n```\n"
        for each in arguments:
            yield f"- `{_shown(each)}`: {each.help}"
        if arguments:
            yield ""
        yield "| option | variable | default | |\n|---|---|---|---|"
        for each in options_of(command):
            names = ", ".join(f"`{option}`" for option in each.opts)
            yield f"| {names} | {_variable(each)} | {_default(each)} | {_paragraphs(each.help)} |"
        yield ""


def _shown(argument: Any) -> str:
    name = str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def _variable(option: Any) -> str:
    return f"`{option.envvar}`" if option.envvar else ""


def _default(option: Any) -> str:
    default = option.default
    if option.required:
        return "required"
    if default is None or default is False or default == ():
        return ""
    return f"`{getattr(default, 'value', default)}`"


def _paragraphs(text: str | None) -> str:
    """The text with its line breaks mended; paragraphs stay apart."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))


def main(arguments: list[str]) -> None:
    """Write to the file that is named, else to stdout."""
    if arguments:
        Path(arguments[0]).write_text(reference(), "utf-8")
    else:
        sys.stdout.write(reference())


if __name__ == "__main__":
    main(sys.argv[1:])
