"""Whether JSON that commands print is what the documentation says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "tools" / "inspect.md"


def documented(command: str) -> dict[str, str]:
    """Key -> type, from the table of a command's section."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (text,) = (s for s in sections if s.startswith(f"`tflgpu {command} "))
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", text, flags=re.MULTILINE))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar, with its path as the page writes it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, f"{path}[]")
    else:
        yield path, value


TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


def check(command: str, outputs: list[Any], opaque: tuple[str, ...] = ()) -> None:
    """opaque: keys whose value another row or section describes."""
    known = documented(command)
    seen: set[str] = set()
    for output in outputs:
        for path, value in leaves(output):
            if path.startswith(tuple(f"{key}." for key in opaque)):
                continue
            assert path in known, f"{path} is not documented"
            seen.add(path)
            kind, _, alternative = known[path].partition(" or ")
            if value is None:
                assert alternative == "null", f"{path} is null"
            else:
                assert isinstance(value, TYPES[kind]), f"{path} is {value!r}, not {kind}"
    objects = {path for path, kind in known.items() if kind.startswith(("object", "list"))}
    assert set(known) - objects - seen == set(), "documented, but never there"
