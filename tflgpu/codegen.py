"""Plan -> OpenCL C. The only module that imports jinja2.

Every kernel of the plan becomes a C function of a tile (``void name(pointers, int tile, __local float4 *scratch)``);
nodes whose functions have the same text share one. An executor wraps the functions: here the launch executor's
wrapper, one ``__kernel`` a function, where work-group i computes tile i.

Nothing that a model says as text reaches the source: templates see shapes, numbers and names made up here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import isinf, isnan
from pathlib import Path
from typing import Any

import jinja2

from tflgpu.ops.kernel import Argument
from tflgpu.plan import Plan, PlannedKernel

PLACEHOLDER = "KERNEL"


@dataclass(frozen=True)
class Function:
    """One tile function and its launch wrapper; ``source`` needs :func:`prelude` before it."""

    name: str
    source: str


@dataclass(frozen=True)
class KernelSource:
    """The distinct functions of a plan, and for each of its kernels the name of the one it launches."""

    functions: tuple[Function, ...]
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it as one compilation unit."""
        return "\n".join((prelude(), *(f.source for f in self.functions)))


def render(plan: Plan) -> KernelSource:
    """The source of every kernel of ``plan``."""
    functions: dict[str, Function] = {}
    names = []
    for planned in plan.kernels:
        text = _render_kernel(planned)
        digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        name = f"{planned.kernel.template}_{digest}"
        functions.setdefault(name, Function(name, text.replace(PLACEHOLDER, name)))
        names.append(name)
    return KernelSource(tuple(functions.values()), tuple(names))


@cache
def prelude() -> str:
    """What every program begins with."""
    return _environment().get_template("storage.cl.j2").render()


def template_folder() -> Path:
    """The templates: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def _literal(value: Any) -> Any:
    """Floats print as C literals of type float, so that no template can forget the suffix; all else as it is."""
    if isinstance(value, float):
        if isnan(value):
            return "NAN"
        if isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"{value!r}f"
    return value


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_folder()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        finalize=_literal,
    )


def _render_kernel(planned: PlannedKernel) -> str:
    kernel, storage = planned.kernel, planned.destination.storage
    body = (
        _environment()
        .get_template(f"{kernel.template}.cl.j2")
        .render(
            **_literals(kernel.parameters),
            local_size=kernel.local_size,
            value_type=kernel.value_type,
            dst=_Destination(storage, planned.destination.dirty),
            steps=[
                {
                    "index": s.index,
                    "function": s.function,
                    "operands": s.operands,
                    "parameters": list(map(_literal, s.parameters)),
                    "type": s.type,
                }
                for s in planned.steps
            ],
        )
    )
    arguments = planned.arguments
    parameters = ", ".join([*(f"{_pointer(a)}{a.name}" for a in arguments), "int tile", "__local float4 *scratch"])
    launch = ", ".join(f"{_pointer(a)}{a.name}, ulong {a.name}_offset" for a in arguments)
    passed = ", ".join(f"{a.name} + {a.name}_offset" for a in arguments)
    local = f"__local float4 scratch[{kernel.scratch}];\n  " if kernel.scratch else ""
    scratch = "scratch" if kernel.scratch else "(__local float4 *)0"
    body = "\n".join(line.rstrip() for line in body.splitlines() if line.strip())
    return (
        f"void {PLACEHOLDER}_tile({parameters}) {{\n{body}\n}}\n"
        f"__kernel __attribute__((reqd_work_group_size({kernel.local_size}, 1, 1)))\n"
        f"void {PLACEHOLDER}({launch}) {{\n"
        f"  {local}{PLACEHOLDER}_tile({passed}, (int)get_group_id(0), {scratch});\n}}\n"
    )


class _Destination:
    """The output's storage with the one thing that only its writer knows."""

    def __init__(self, storage: Any, dirty: bool) -> None:
        self._storage = storage
        self.dirty = dirty

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def _literals(parameters: Any) -> dict[str, Any]:
    """Parameters with their floats, also those in tuples, as C literals."""
    convert: Callable[[Any], Any] = lambda v: tuple(map(_literal, v)) if isinstance(v, tuple) else _literal(v)  # noqa: E731
    return {name: convert(value) for name, value in parameters.items()}


def _pointer(argument: Argument) -> str:
    qualifier = "" if argument.written else "const "
    # Constants never alias anything. Activations may: a kernel can write in place of an operand.
    restrict = "restrict " if argument.data is not None else ""
    return f"__global {qualifier}{argument.type} *{restrict}"
