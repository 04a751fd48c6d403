"""All options: ``python -m scripts.pages.make_options`` writes docs/reference/options.md from tflgpu/options.py.

Types, choices, defaults and flags are those of the declarations, details those of the docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.pages.docstrings import ROLE
from tflgpu.checking.option_declarations import Group, Place, choices_of, flat_names
from tflgpu.options import Options

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "options.md"

HEAD = """# Options

Five options are for daily use; the others are in groups of what belongs together. All are values that cannot change:
`dataclasses.replace` makes another one. `python -m scripts.pages.make_options` writes this page from
`tflgpu/options.py`.

```python
from dataclasses import replace

import tflgpu

options = tflgpu.Options(precision="fp16", cache="off", shapes=tflgpu.Shapes(batch=8))
larger = replace(options, shapes=tflgpu.Shapes(batch=16))
```

A wrong value is a TypeError or ValueError that names the option, such as `Options.shapes.batch`. Flags are those of the
commands that run a model, such as [`tflgpu run`](../tools/run.md).
"""

OLD_NAMES = """## Old names

Until groups were introduced all options were fields of `Options`. `Options(batch=8)` and `options.batch` work for one
more release, with a DeprecationWarning that says what to write. `load_delegate` takes these names, and goes on to do
so: [the delegate](../guide/interpreter.md#the-delegate). Old values work for one more release, too.

| old name | option |
|---|---|
"""


def entries(kind: type) -> tuple[str, dict[str, str]]:
    """The text of a class's docstring before its attributes, and the text of each attribute."""
    text = ROLE.sub(r"`\1`", inspect.getdoc(kind) or "").replace("``", "`")
    head, _, attributes = text.partition("\nAttributes:\n")
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", attributes, re.MULTILINE)
    return head.strip(), {name: " ".join(details.split()) for name, details in found}


def type_of(place: Place) -> str:
    """``"fp32"`` and other choices, or ``int``."""
    if choices := choices_of(place.field):
        return ", ".join(f'`"{choice}"`' for choice in choices)
    written = re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(place.field.type))
    if place.default is None:
        written = written.removesuffix(" | None")
    return f"`{written.replace(' | ', ' or ')}`"


def default_of(place: Place) -> str:
    """The value, or what it means that there is none."""
    value = place.default
    if place.declared.absent is not None and not value:
        return place.declared.absent
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:,}`" if type(value) is int else f"`{value}`"


def row(name: str, place: Place) -> str:
    """A line of a table."""
    flag = f"`--{name.replace('_', '-')}`" if place.declared.command else ""
    cells = f"`{place.field.name}`", type_of(place), default_of(place), flag, place.declared.help
    return f"| {' | '.join(cells)} |"


def section(title: str, kind: type, places: Mapping[str, Place]) -> Iterator[str]:
    """A table, and the details of each option."""
    _, details = entries(kind)
    rows = (row(name, place) for name, place in places.items())
    yield "\n".join((f"## {title}", "", "| option | type | default | flag | |", "|---|---|---|---|---|", *rows))
    yield "\n\n".join(f"`{place.field.name}`\n:   {details[place.field.name]}" for place in places.values())


def page() -> str:
    """The text of docs/reference/options.md."""
    every = flat_names(Options)
    groups: dict[type[Group] | None, dict[str, Place]] = {}
    for name, place in every.items():
        groups.setdefault(place.group, {})[name] = place
    signature = "".join(f"    {line},\n" for line in _lines(groups))
    parts = [HEAD, f"```text\nOptions(\n{signature})\n```"]
    for group, places in groups.items():
        if group is None:
            parts += section("Daily use", Options, places)
        else:
            table, details = section(f"`{group.place}=tflgpu.{group.__name__}(...)`", group, places)
            heading, _, rows = table.partition("\n\n")
            parts += [heading, entries(group)[0], rows, details]
    names = [f"| `{name}` | `{place.path}` |" for name, place in every.items() if place.group]
    values = [
        f'| `{place.path}="{old}"` | `{place.path}="{now}"` |'
        for place in every.values()
        for old, now in place.declared.old_values.items()
    ]
    old = "\n".join((*names, *values))
    return "\n\n".join(part.strip() for part in (*parts, OLD_NAMES + old)) + "\n"


def _lines(groups: Mapping[type[Group] | None, Mapping[str, Place]]) -> Iterator[str]:
    """The arguments of Options."""
    for group, places in groups.items():
        if group is None:
            yield ", ".join(f'{place.field.name}="{place.default}"' for place in places.values())
        else:
            yield f"{group.place}={group.__name__}({', '.join(place.field.name for place in places.values())})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
