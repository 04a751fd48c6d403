"""The templates, and how values are printed in them. Only this module imports jinja2."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isinf, isnan
from pathlib import Path
from typing import Any

import jinja2


def template_folder() -> Path:
    """The folder of the templates: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def literal(value: Any) -> Any:
    """A float as a C literal of type float, so that no template can forget the suffix; anything else unchanged."""
    if isinstance(value, float):
        if isnan(value):
            return "NAN"
        if isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"{value!r}f"
    return value


@cache
def environment() -> jinja2.Environment:
    """The one environment of all templates. An undefined name in a template is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_folder()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        finalize=literal,
    )


def literals(parameters: Any) -> dict[str, Any]:
    """Template parameters with their floats, also those in tuples, as C literals."""
    convert: Callable[[Any], Any] = lambda v: tuple(map(literal, v)) if isinstance(v, tuple) else literal(v)  # noqa: E731
    return {name: convert(value) for name, value in parameters.items()}
