"""The page of all commands, made from their own help when the site is built, so that it is never out of date."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from tflgpu.cli import app

HEAD = """# All commands

What `tflgpu COMMAND --help` says. [The tools](../tools/index.md) shows what they print.
"""


def page() -> str:
    """The text of the page, in Markdown."""
    return "\n\n".join((HEAD, *(_section(path, command) for path, command in _commands("tflgpu", get_command(app)))))


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The commands below one, each with the words that call it."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        if not below.hidden:
            yield from _commands(f"{path} {name}", below)


def _section(path: str, command: Any) -> str:
    shown = [p for p in command.params if p.name != "help" and not p.hidden]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    call = " ".join((path, "[OPTIONS]", *(_placeholder(a) for a in arguments)))
    rows = [_row(p) for p in shown]
    table = "\n".join(("| | | default |", "|---|---|---|", *rows)) if rows else ""
    return f"## {path}\n\n```text\n{call}\n```\n\n{command.help or ''}\n\n{table}"


def _placeholder(argument: Any) -> str:
    word = argument.metavar or argument.name.upper()
    return word if argument.required else f"[{word}]"


def _row(parameter: Any) -> str:
    names = [_placeholder(parameter)] if parameter.param_type_name == "argument" else parameter.opts
    written = ", ".join(f"`{name}`" for name in names)
    if parameter.param_type_name == "option" and parameter.metavar:
        written += f" `{parameter.metavar}`"
    return f"| {written} | {(parameter.help or '').replace('|', '/')} | {_default(parameter)} |"


def _default(parameter: Any) -> str:
    """The default in the help: a text that explains it, or the value itself."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    hidden = not parameter.show_default or getattr(parameter, "is_flag", False) or parameter.default in (None, "", ())
    return "" if hidden else f"`{parameter.default}`"
