"""The templates of OpenCL C, and how values are printed in them. Only this module renders them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.resources import files
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
    """A float as a C literal of type float, so that no template can forget the suffix; an integer as a C expression."""
    if isinstance(value, float):
        if isnan(value):
            return "NAN"
        if isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"{value!r}f"
    if isinstance(value, int) and value == -(2**63):
        return "LONG_MIN"  # C has no literal for it
    return value


def package_template(name: str) -> str | None:
    """A template of a package that adds operators: ``package/kernel.cl.j2`` is in the package's folder ``templates``.

    None if there is no such file, or the package has not been imported.
    """
    package, _, rest = name.partition("/")
    if package not in sys.modules:
        return None
    file = files(package) / "templates" / rest
    return file.read_text() if file.is_file() else None


@cache
def environment() -> jinja2.Environment:
    """The one environment of all templates. An undefined name in a template is an error."""
    own, added = jinja2.FileSystemLoader(template_folder()), jinja2.FunctionLoader(package_template)
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader((own, added)),
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
