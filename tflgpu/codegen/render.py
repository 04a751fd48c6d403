"""Plan -> OpenCL C.

Every kernel of the plan becomes a C function of a tile (``void name(pointers, int tile, __local float4 *workspace)``);
nodes whose functions have the same text share one. For the launch executor :func:`render` wraps each function in a
``__kernel`` whose work-group i computes tile i. For the persistent and the claiming executor
:func:`tflgpu.codegen.assemble.assemble` makes one ``__kernel`` that calls them in order.

No text of a model reaches the source: templates see only shapes, numbers and names that are made here.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tflgpu.codegen.environment import environment, literal, literals
from tflgpu.codegen.shared_functions import share
from tflgpu.errors import internal_faults
from tflgpu.kernels.architecture import prelude_templates
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.plan import Plan, PlannedKernel
from tflgpu.target import WIDE, Target, VectorType, vector_type

PLACEHOLDER = "KERNEL"


@dataclass(frozen=True)
class Function:
    """One tile function and its launch wrapper; both need the prelude before them.

    pointers: the types of its pointer arguments. workspace: float4 elements of local memory.
    """

    name: str
    tile: str
    wrapper: str
    pointers: tuple[str, ...]
    workspace: int

    @property
    def source(self) -> str:
        return self.tile + self.wrapper


@dataclass(frozen=True)
class KernelSource:
    """The distinct functions of a plan, and for each of its kernels the name of the one it launches.

    prelude: the text that both functions and wrappers need before them.
    """

    prelude: str
    functions: tuple[Function, ...]
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it as one compilation unit."""
        return "\n".join((self.prelude, *(f.source for f in self.functions)))


@internal_faults("rendering the source")
def render(plan: Plan) -> KernelSource:
    """The source of every kernel of ``plan``."""
    bodies: dict[str, str] = {}  # of the distinct functions, by name
    kernels: dict[str, PlannedKernel] = {}  # the first that launches each
    rendered: dict[str, str] = {}  # names by what the text is made of: deep models repeat their layers
    names = []
    for planned in plan.kernels:
        made_of = _made_of(planned)
        if made_of not in rendered:
            with internal_faults(f"rendering {planned.node.title}"):
                body, wrapper = _render_body(planned, plan.target), _wrapper(PLACEHOLDER, planned, plan.target)
            digest = hashlib.blake2b((_tile(PLACEHOLDER, planned, body) + wrapper).encode(), digest_size=6).hexdigest()
            name = rendered[made_of] = f"{planned.kernel.template.replace('/', '_')}_{digest}"
            bodies.setdefault(name, body)
            kernels.setdefault(name, planned)
        names.append(rendered[made_of])
    alike = [name for name, planned in kernels.items() if _is_shareable(planned.kernel, plan.target)]
    shared, calls = share({name: (tuple(_parameters(kernels[name])), bodies[name]) for name in alike})
    types = {vector_type(a.type) for k in plan.kernels for a in k.arguments}
    wide = WIDE & (types | {op.type for k in plan.kernels for op in k.epilogue})
    text = prelude(plan.target) + (_wide_prelude(wide) if wide else "") + "\n" + shared
    functions = (
        Function(
            name,
            _tile(name, planned, calls.get(name, bodies[name])),
            _wrapper(name, planned, plan.target),
            tuple(map(_pointer, planned.arguments)),
            planned.kernel.workspace,
        )
        for name, planned in kernels.items()
    )
    return KernelSource(text, tuple(functions), tuple(names))


@cache
def prelude(target: Target) -> str:
    """The text that every program for ``target`` begins with: access to memory, then that of its architectures."""
    arithmetic = ("access/half_arithmetic",) if target.arithmetic == "half" else ()
    names = ("access/storage", *arithmetic, *prelude_templates(target))
    return "\n".join(environment().get_template(f"{name}.cl.j2").render() for name in names)


@cache
def _wide_prelude(types: frozenset[VectorType]) -> str:
    """Access to elements of these types, which few programs need and not every device has."""
    return "\n" + environment().get_template("access/wide_storage.cl.j2").render(types=sorted(types))


def _is_shareable(kernel: Kernel, target: Target) -> bool:
    """Whether its function may take sizes as arguments.

    A GPU's compiler is to know every number. So is a CPU's where a kernel divides for each element: movements get up to
    three times slower by divisors that it does not know.
    """
    return target.family == "cpu" and (kernel.macs > 0 or kernel.takes_sizes) and kernel.local_size == 1


def _made_of(planned: PlannedKernel) -> str:
    """All that a kernel's text depends on. As text, because there 1, 1.0 and True are not equal."""
    kernel = planned.kernel
    launch = (
        kernel.template,
        kernel.local_size,
        kernel.workspace,
        kernel.value_type,
        kernel.fills_vectors,
        kernel.takes_sizes,
    )
    arguments = [(a.name, _pointer(a)) for a in planned.arguments]
    shares = (kernel.shares, kernel.tiles) if kernel.shares > 1 else ()
    with np.printoptions(threshold=sys.maxsize):
        return repr((launch, shares, kernel.parameters, arguments, planned.destination, planned.epilogue))


def _render_body(planned: PlannedKernel, target: Target) -> str:
    """What computes one tile."""
    kernel, storage = planned.kernel, planned.destination.storage
    share = storage.share(kernel.shares)
    body = (
        environment()
        .get_template(f"{kernel.template}.cl.j2")
        .render(
            **literals(kernel.parameters),
            local_size=kernel.local_size,
            value_type=kernel.value_type,
            shuffles=target.ptx,
            dst=_Destination(share, planned.destination.dirty),
            epilogue=[
                {
                    "index": op.index,
                    "function": op.function,
                    "operands": op.operands,
                    "parameters": list(map(literal, op.parameters)),
                    "type": op.type,
                    "source": op.source,
                    "wide": bool(WIDE & {op.type, op.source}),
                }
                for op in planned.epilogue
            ],
        )
    )
    if kernel.shares > 1:
        tiles = kernel.tiles // kernel.shares
        body = f"const int share = tile / {tiles};\ntile %= {tiles};\ndst += share * {share.elements};\n{body}"
    return "\n".join(line.rstrip() for line in body.splitlines() if line.strip())


def _parameters(planned: PlannedKernel) -> list[str]:
    """The parameters of the function that computes one tile."""
    return [*(f"{_pointer(a)}{a.name}" for a in planned.arguments), "int tile", "__local float4 *workspace"]


def _tile(name: str, planned: PlannedKernel, body: str) -> str:
    return f"void {name}_tile({', '.join(_parameters(planned))}) {{\n{body}\n}}\n"


def _wrapper(name: str, planned: PlannedKernel, target: Target) -> str:
    """The kernel in which work-group i computes tile i, or tile o - i where the launch has a global offset o.

    Not every device has arguments of 64 bits for its pointers' offsets.
    """
    kernel, arguments = planned.kernel, planned.arguments
    offset = "uint" if "int64" in target.missing_types else "ulong"
    launch = ", ".join(f"{_pointer(a)}{a.name}, {offset} {a.name}_offset" for a in arguments)
    passed = ", ".join(f"{a.name} + {a.name}_offset" for a in arguments)
    local = f"__local float4 workspace[{kernel.workspace}];\n  " if kernel.workspace else ""
    workspace = "workspace" if kernel.workspace else "(__local float4 *)0"
    tile = "(int)abs((int)get_global_offset(0) - (int)get_group_id(0))"
    # Without it Intel's compiler makes versions of large and of shared functions for vectors of work-items.
    hint = "__attribute__((vec_type_hint(float4)))\n" if kernel.fills_vectors or _is_shareable(kernel, target) else ""
    return (
        f"__kernel __attribute__((reqd_work_group_size({kernel.local_size}, 1, 1)))\n{hint}"
        f"void {name}({launch}) {{\n"
        f"  {local}{name}_tile({passed}, {tile}, {workspace});\n}}\n"
    )


class _Destination:
    """The output's storage. dirty: whether the kernel must set the lanes past the last channel to zero."""

    def __init__(self, storage: Any, dirty: bool) -> None:
        self._storage = storage
        self.dirty = dirty

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def _pointer(argument: Argument) -> str:
    qualifier = "" if argument.written else "const "
    # Constants never alias anything. Activations may: a kernel can write its result over an operand.
    restrict = "restrict " if argument.data is not None and argument.restrict else ""
    return f"__global {qualifier}{argument.type} *{restrict}"
