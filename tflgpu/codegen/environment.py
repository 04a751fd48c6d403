"""The templates of OpenCL C, and how values are printed in them. Only this module renders them.

A size (:data:`tflgpu.graph.layout.Size`) of a template's parameters, and what a template computes of it, prints itself
between two marks, as every float of the parameters does. A rendered body is divided at these marks, so that nothing
looks for numbers in C. All other numbers are text: those of unrolled turns, the lengths of arrays. Where C wants a
constant in place of a size, the template says ``| constant`` or prints it by ``%d``. It says ``| turns`` in the heads
of loops, whose turns a GPU's compiler is to know.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from importlib.util import cache_from_source
from math import isinf, isnan
from pathlib import Path
from pickle import UnpicklingError
from tempfile import NamedTemporaryFile
from typing import Any

import jinja2
import numpy as np
from jinja2.bccache import Bucket

from tflgpu.kernels.kernel import Parameters, Storage

MARK, TURNS = "\ue000", "\ue001"  # of the private use area, which no source has

LARGEST_INT = 2**31 - 1  # of a device; the literal of its negative neighbour has another type


class Number(int):
    """An integer of a kernel's parameters, or one that a template has computed of it."""

    def __str__(self) -> str:
        digits = int.__repr__(self)
        return f"{MARK}{digits}{MARK}" if -LARGEST_INT <= self <= LARGEST_INT else digits

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) if spec else str(self)


def _closed(name: str) -> Callable[..., Any]:
    """Return an operation of integers whose result is a number of the parameters again."""
    operation = getattr(int, name)

    def of_numbers(self: int, *others: Any) -> Any:
        result = operation(self, *others)
        return Number(result) if type(result) is int else result

    return of_numbers


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
    for _operation in (f"__{_name}__", f"__r{_name}__"):
        setattr(Number, _operation, _closed(_operation))
for _operation in ("__neg__", "__pos__", "__abs__"):
    setattr(Number, _operation, _closed(_operation))


class Seen:
    """A dataclass of the parameters as templates see it: sizes in it are :class:`Number`."""

    def __init__(self, value: Any) -> None:
        self.__value, self.__is_storage, self.__sizes = value, isinstance(value, Storage), _sizes(value.__class__)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__value, name)
        found = self.__dict__[name] = seen(found, is_size=self.__is_storage or name in self.__sizes)
        return found


@cache
def _sizes(kind: Any) -> frozenset[str]:
    """Return the names of the sizes of a dataclass or a named tuple."""
    types = {field.name: field.type for field in fields(kind)} if is_dataclass(kind) else kind.__annotations__
    return frozenset(name for name, declared in types.items() if "Size" in str(declared))


def seen(value: Any, *, is_size: bool = False) -> Any:
    """Return a value of a kernel's parameters as templates see it.

    Args:
        value: Also a tuple, a list, a mapping or a dataclass, whose values are seen so, too.
        is_size: Whether an integer is a size, in which kernels of the same text may differ.
    """
    if is_size and type(value) is int:
        return Number(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return type(value)(*(seen(item, is_size=name in _sizes(type(value))) for name, item in value._asdict().items()))
    if isinstance(value, tuple | list):
        return type(value)(seen(item, is_size=is_size) for item in value)
    if isinstance(value, Mapping):
        return {name: seen(item) for name, item in value.items()}
    return Seen(value) if is_dataclass(value) else value


def seen_fields(parameters: Parameters) -> dict[str, Any]:
    """Return what a template sees of its parameters, by name.

    Args:
        parameters: The fields of which the type is Size are sizes.
    """
    view = Seen(parameters)

    def with_literals(value: Any) -> Any:
        return tuple(map(literal, value)) if type(value) is tuple else literal(value)

    return {field.name: with_literals(getattr(view, field.name)) for field in fields(parameters)}


def literal(value: Any) -> Any:
    """Return a value as C, so that no template can forget a suffix.

    Args:
        value: A float becomes a literal of type float, an integer an expression; anything else stays as it is.
    """
    if isinstance(value, float):
        if isnan(value):
            return "NAN"
        if isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"{MARK}{value!r}f{MARK}"
    if isinstance(value, int) and value == -(2**63):
        return "LONG_MIN"  # C has no literal for it
    return value


def value_of(literal_or_float: str | float) -> float:
    """Return the number that a literal stands for.

    Args:
        literal_or_float: Made by :func:`literal`, or a number, which is its own.
    """
    return float(plain(literal_or_float).removesuffix("f")) if isinstance(literal_or_float, str) else literal_or_float


def constant(printed: Any) -> Any:
    """Return a number that prints itself without marks, or text that has none: the filter ``constant``.

    Args:
        printed: A number, or text that has numbers.
    """
    return int(printed) if isinstance(printed, int) else plain(printed)


def plain(printed: object) -> str:
    """Return what is printed, without marks.

    Args:
        printed: A number, or text that has numbers.
    """
    return str(printed).replace(TURNS, "").replace(MARK, "")


def turns(printed: object) -> str:
    """Return what is printed in the head of a loop, whose turns a GPU's compiler knows: the filter ``turns``.

    Args:
        printed: A number, or text that has numbers.
    """
    pieces = str(printed).replace(TURNS, "").split(MARK)
    return MARK.join(f"{TURNS}{piece}" if i % 2 else piece for i, piece in enumerate(pieces))


# A macro in the text of a function: from here on it reads what other kernels write. It is empty, except in a persistent
# kernel.
AWAIT_INPUTS = "AWAIT_INPUTS"


def template_folder() -> Path:
    """Return the folder of the templates: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def steps_in_one(scale: str | float) -> float:
    """Return the steps of a grid in 1.0, a little more than there are, as a device computes it in float.

    Args:
        scale: The size of a step, also as a literal of C.
    """
    return float(np.float32(float.fromhex("0x1.000004p0")) / np.float32(value_of(scale)))


def large_step(integer: str | float, zero: str | float = 0.0) -> float:
    """Return 1.5 * 2^23, whose bits are 0x4b400000, plus the steps from a grid's zero point to an integer of it.

    Args:
        integer: An integer of the grid, also as a literal of C.
        zero: The zero point, also as a literal of C.
    """
    return float(3 << 22) + value_of(integer) - value_of(zero)


def package_template(name: str) -> str | None:
    """Return the text of a template of a package that adds operators.

    Args:
        name: ``package/kernel.cl.j2`` is in the package's folder ``templates``.

    Returns:
        None if there is no such file, or the package has not been imported.
    """
    package, _, rest = name.partition("/")
    if package not in sys.modules:
        return None
    file = files(package) / "templates" / rest
    return file.read_text() if file.is_file() else None


class Bytecode(jinja2.BytecodeCache):
    """Compiled templates where Python keeps this compiled module: beside it, or below PYTHONPYCACHEPREFIX.

    To compile them takes up to a fifth of a model's first compilation. Jinja compares a hash of the template.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a compiled template, if there is one."""
        # A file that another program has damaged is as good as none.
        with suppress(OSError, EOFError, ValueError, UnpicklingError), self._path(bucket).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a compiled template, where the folder allows it."""
        if sys.dont_write_bytecode:
            return
        path = self._path(bucket)
        with suppress(OSError):  # as Python does for folders that it must not write to
            path.parent.mkdir(parents=True, exist_ok=True)
            file = NamedTemporaryFile(dir=path.parent, delete=False)  # noqa: SIM115  closing it can fail as well
            try:
                with file:
                    bucket.write_bytecode(file)
                os.replace(file.name, path)
            finally:
                Path(file.name).unlink(missing_ok=True)

    def _path(self, bucket: Bucket) -> Path:
        return Path(cache_from_source(str(Path(__file__).with_name(f"template_{bucket.key}.py"))))


@cache
def environment() -> jinja2.Environment:
    """Return the one environment of all templates. An undefined name in a template is an error."""
    own, added = jinja2.FileSystemLoader(template_folder()), jinja2.FunctionLoader(package_template)
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader((own, added)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        finalize=literal,
        bytecode_cache=Bytecode(),
    )
    made.filters |= {"constant": constant, "turns": turns}
    made.globals |= {
        "AWAIT_INPUTS": f"{MARK}{AWAIT_INPUTS}{MARK}",
        "steps_in_one": steps_in_one,
        "large_step": large_step,
    }
    return made


def rendered(name: str, /, **context: Any) -> str:
    """Return the text of a template.

    Args:
        name: Its path below ``templates/``, without the suffix.
        **context: The names that it sees.
    """
    return plain(rendered_with_marks(name, **context))


def rendered_with_marks(name: str, /, **context: Any) -> str:
    """Return the text of a template, and in it the marks of :mod:`tflgpu.codegen.environment`.

    Args:
        name: Its path below ``templates/``, without the suffix.
        **context: The names that it sees.
    """
    return environment().get_template(f"{name}.cl.j2").render(context)
