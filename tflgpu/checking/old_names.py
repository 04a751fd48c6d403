"""The names that options had when they had no groups: they work for one release, with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from tflgpu.checking.option_declarations import GOES, Group, flat_names, grouped
from tflgpu.errors import warn_caller

Old = Mapping[str, tuple[type[Group], str]]  # group and name of a field by its old name


def accept_old_names(kind: Any) -> None:
    """Let a class of options take and give the options of its groups under their flat names.

    Its signature stays that of its fields.

    Args:
        kind: The class; it is changed in place.
    """
    old = {name: (place.group, place.field.name) for name, place in flat_names(kind).items() if place.group}
    make = kind.__init__

    @wraps(make)
    def __init__(self: Any, *args: Any, **given: Any) -> None:  # noqa: N807
        if not old.keys().isdisjoint(given):
            given = _regrouped(kind, old, given)
        make(self, *args, **given)

    def __getattr__(self: Any, name: str) -> Any:  # noqa: N807
        if name not in old:
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self)
        group, field = old[name]
        message = f"Options.{name} is now Options.{group.place}.{field}; {GOES}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(getattr(self, group.place), field)

    kind.__init__, kind.__getattr__ = __init__, __getattr__


def _regrouped(kind: Any, old: Old, given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords with groups in place of old names. Raises TypeError for both an old name and its group."""
    flat = {name: value for name, value in given.items() if name in old}
    result = {name: value for name, value in given.items() if name not in old}
    replacing = sys._getframe(2).f_globals.get("__name__") == "dataclasses"  # calls __init__
    advice = _advice(old, flat, replacing)
    names = ", ".join(f"{name}=..." for name in flat)
    for place, name in ((old[name][0].place, name) for name in flat):
        if place in result and not replacing:
            raise TypeError(f"Options has both {place}= and {name}=, which is a part of it; write {advice}")
    warn_caller(f"Options({names}) is now {advice}; {GOES}", DeprecationWarning)
    if not replacing:
        return result | grouped(kind, flat)
    for name, value in flat.items():  # dataclasses.replace gives every group as it was
        group, field = old[name]
        result[group.place] = replace(result[group.place], **{field: value})
    return result


def _advice(old: Old, flat: Iterable[str], replacing: bool) -> str:
    """Return what to write: ``Options(shapes=Shapes(batch=...))``."""
    groups: dict[type[Group], list[str]] = {}
    for group, field in map(old.__getitem__, flat):
        groups.setdefault(group, []).append(f"{field}=...")
    parts = []
    for group, values in groups.items():
        made = f"replace(options.{group.place}, " if replacing else f"{group.__name__}("
        parts.append(f"{group.place}={made}{', '.join(values)})")
    return f"replace(options, {', '.join(parts)})" if replacing else f"Options({', '.join(parts)})"
