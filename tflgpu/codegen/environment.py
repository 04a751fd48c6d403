"""The templates of OpenCL C, and how values are printed in them. Only this module renders them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from pickle import UnpicklingError
from tempfile import NamedTemporaryFile
from typing import Any

import jinja2
import numpy as np
from jinja2.bccache import Bucket

from tflgpu.codegen.printed_numbers import MARK, constant, literal, plain, turns, value_of

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
    """Return the text of a template, and in it the marks of :mod:`tflgpu.codegen.printed_numbers`.

    Args:
        name: Its path below ``templates/``, without the suffix.
        **context: The names that it sees.
    """
    return environment().get_template(f"{name}.cl.j2").render(context)
