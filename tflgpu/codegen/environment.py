"""The templates, and how values print in them. The only module that imports jinja2."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isinf, isnan
from pathlib import Path
from typing import Any

import jinja2


def template_folder() -> Path:
    """The templates: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def literal(value: Any) -> Any:
    """Floats print as C literals of type float, so that no template can forget the suffix; all else as it is."""
    if isinstance(value, float):
        if isnan(value):
            return "NAN"
        if isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"{value!r}f"
    return value


@cache
def environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_folder()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        finalize=literal,
    )


def literals(parameters: Any) -> dict[str, Any]:
    """Parameters with their floats, also those in tuples, as C literals."""
    convert: Callable[[Any], Any] = lambda v: tuple(map(literal, v)) if isinstance(v, tuple) else literal(v)  # noqa: E731
    return {name: convert(value) for name, value in parameters.items()}
