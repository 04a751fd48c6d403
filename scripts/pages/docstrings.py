"""Docstrings as Markdown: an extension of Griffe, by which mkdocstrings reads them.

In the code a field or argument is a line ``name: what it is``, with indented lines that go on. On the page it becomes
an entry of a definition list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import griffe

ENTRY = re.compile(r"^(\w+(?:, \w+)*): (.*(?:\n[ ]{4}.*)*)", re.MULTILINE)
ROLE = re.compile(r":\w+:`([^`]+)`")


class Fields(griffe.Extension):
    """Rewrites the docstrings of a package when it has been read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        rewrite(pkg)


def rewrite(thing: griffe.Object) -> None:
    """The docstrings of an object and of all that is in it."""
    if thing.docstring:
        thing.docstring.value = as_markdown(thing.docstring.value, names_in(thing))
    for member in thing.members.values():
        if isinstance(member, griffe.Object):
            rewrite(member)


def names_in(thing: griffe.Object) -> set[str]:
    """The names that an entry may have: fields of a class, and arguments."""
    functions: Iterable[Any] = (thing, thing.members.get("__init__"))
    arguments = (p.name for f in functions if isinstance(f, griffe.Function) for p in f.parameters)
    return {*thing.members, *arguments}


def as_markdown(text: str, names: set[str]) -> str:
    """A docstring with a definition list in place of its entries."""

    def entry(match: re.Match[str]) -> str:
        if not names.issuperset(match[1].split(", ")):
            return match[0]
        heading = ", ".join(f"`{name}`" for name in match[1].split(", "))
        return f"\n{heading}\n:   {match[2]}\n"

    return ENTRY.sub(entry, ROLE.sub(r"`\1`", text))
