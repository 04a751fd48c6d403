"""Docstrings as Markdown: an extension of Griffe, by which mkdocstrings reads them.

In the code a field or argument is ``name: what it is``, at the start of a line or behind a sentence. On the page it
becomes an entry of a definition list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

import griffe

NAMES = re.compile(r"(?:^|(?<=[.;] ))((?:\w+, )*\w+): ", re.MULTILINE)
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
    paragraphs = re.split(r"\n\s*\n", ROLE.sub(r"`\1`", text))
    return "\n\n".join("\n\n".join(_entries(paragraph, names)) for paragraph in paragraphs)


def _entries(paragraph: str, names: set[str]) -> Iterator[str]:
    """The text before the first entry of a paragraph, and its entries; a paragraph without any stays as it is."""
    starts = [match for match in NAMES.finditer(paragraph) if names.issuperset(match[1].split(", "))]
    if before := paragraph[: starts[0].start()] if starts else paragraph:
        yield before
    for match, following in zip_longest(starts, starts[1:]):
        heading = ", ".join(f"`{name}`" for name in match[1].split(", "))
        text = paragraph[match.end() : following.start() if following else None]
        yield f"{heading}\n:   {' '.join(text.split())}"
