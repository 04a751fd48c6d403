"""Plan -> OpenCL C, and how much one model may give to the planner and to a device's compiler.

Every kernel of the plan becomes a C function of a tile (``void name(pointers, int tile, __local float4 *workspace)``);
nodes whose functions have the same text share one. For the launch executor :func:`render` wraps each function in a
``__kernel`` whose work-group i computes tile i. For the persistent and the claiming executor
:func:`tflgpu.codegen.whole_kernels.assemble` makes one ``__kernel`` that calls them in order.

No text of a model reaches the source: templates see only shapes, numbers and names that are made here.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tflgpu.codegen.environment import Number, literal, rendered, rendered_with_marks, seen, seen_fields
from tflgpu.codegen.functions import Function, Pointer, body_of, share
from tflgpu.errors import UnsupportedError, internal_faults
from tflgpu.graph.ir import Graph
from tflgpu.kernels.architecture import prelude_templates
from tflgpu.kernels.kernel import Argument, Grid, Kernel, Storage
from tflgpu.plan import Plan, PlannedKernel
from tflgpu.target import HALF_MAX, WIDE, Target, VectorType, vector_type

PLACEHOLDER = "KERNEL"


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
    """Return the source of every kernel of ``plan``."""
    functions: dict[str, Function] = {}
    shareable: set[str] = set()
    rendered: dict[str, str] = {}  # names by what the text is made of: deep models repeat their layers
    names = []
    for planned in plan.kernels:
        made_of = _made_of(planned)
        if made_of not in rendered:
            with internal_faults(f"rendering {planned.node.title}"):
                function = _function(planned, plan.target)
            rendered[made_of] = function.name
            functions.setdefault(function.name, function)
            if _is_shareable(planned.kernel, plan.target):
                shareable.add(function.name)
        names.append(rendered[made_of])
    shared, calls = share({name: (f.pointers, f.body) for name, f in functions.items() if name in shareable})
    types = {vector_type(a.type) for k in plan.kernels for a in k.arguments}
    wide = WIDE & (types | {op.type for k in plan.kernels for op in k.epilogue})
    grids = {a.grid for k in plan.kernels for a in k.arguments if a.grid is not None}
    text = prelude(plan.target) + _wide_prelude(frozenset(wide)) + _grid_prelude(frozenset(grids)) + "\n" + shared
    called = (replace(f, body=calls[name]) if name in calls else f for name, f in functions.items())
    return KernelSource(text, tuple(called), tuple(names))


@cache
def prelude(target: Target) -> str:
    """Return the text that every program for ``target`` begins with: access to memory, then that of its
    architectures."""
    arithmetic = ("access/half_arithmetic",) if target.arithmetic == "half" else ()
    own = ("access/storage", *arithmetic)
    templates = (*((name, {}) for name in own), *prelude_templates(target))
    return "\n".join(rendered(name, **facts) for name, facts in templates)


@cache
def _wide_prelude(types: frozenset[VectorType]) -> str:
    """Access to elements of these types, which few programs need and not every device has."""
    if not types:
        return ""
    return "\n" + rendered("access/wide_storage", types=sorted(types))


@cache
def _grid_prelude(grids: frozenset[Grid]) -> str:
    """Access to elements on these grids."""
    if not grids:
        return ""
    return "\n" + rendered("access/grid_storage", grids=sorted(grids, key=lambda grid: grid.form))


def _is_shareable(kernel: Kernel, target: Target) -> bool:
    """Whether its function may take numbers as arguments.

    Only a persistent kernel's functions do so on GPUs: :func:`tflgpu.codegen.functions.variants`.
    """
    return target.family == "cpu" and kernel.local_size == 1


def _takes_numbers(kernel: Kernel) -> bool:
    """Whether a kernel does not divide for each element: movements get up to three times slower by unknown divisors."""
    return kernel.macs > 0 or kernel.takes_sizes


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
    arguments = list(map(_pointer, planned.arguments))
    shares = (kernel.shares, kernel.tiles) if kernel.shares > 1 else ()
    with np.printoptions(threshold=sys.maxsize):
        return repr((launch, shares, kernel.parameters, arguments, planned.destination, planned.epilogue))


def _render_body(planned: PlannedKernel, target: Target) -> str:
    """Return what computes one tile."""
    kernel, storage = planned.kernel, planned.destination.storage
    share = storage.share(kernel.shares)
    body = rendered_with_marks(
        kernel.template,
        **seen_fields(kernel.parameters),
        local_size=kernel.local_size,
        value_type=kernel.value_type,
        shuffles=target.ptx,
        dst=seen(
            _Destination(
                share.geometry,
                share.type,
                share.linear,
                share.grid,
                dirty=planned.destination.dirty,
                bounded=_is_bounded(planned),
            )
        ),
        epilogue=[
            {
                "index": op.index,
                "function": op.function,
                "operands": seen(op.operands),
                "parameters": list(map(literal, op.parameters)),
                "type": op.type,
                "source": op.source,
                "wide": bool(WIDE & {op.type, op.source}),
            }
            for op in planned.epilogue
        ],
    )
    if kernel.shares > 1:
        tiles, elements = Number(kernel.tiles // kernel.shares), Number(share.elements)
        body = f"const int share = tile / {tiles};\ntile %= {tiles};\ndst += share * {elements};\n{body}"
    return "\n".join(line.rstrip() for line in body.splitlines() if line.strip())


def _function(planned: PlannedKernel, target: Target) -> Function:
    """Return the function of a kernel, whose name has a digest of its text."""
    kernel = planned.kernel
    # Without the hint Intel's compiler makes versions of large and of shared functions for vectors of work-items.
    function = Function(
        PLACEHOLDER,
        tuple(map(_pointer, planned.arguments)),
        body_of(_render_body(planned, target), takes_numbers=_takes_numbers(kernel)),
        kernel.workspace,
        kernel.local_size,
        fills_vectors=kernel.fills_vectors or _is_shareable(kernel, target),
        offset_type="uint" if "int64" in target.missing_types else "ulong",
        takes_numbers=_takes_numbers(kernel),
    )
    digest = hashlib.blake2b(function.source.encode(), digest_size=6).hexdigest()
    return replace(function, name=f"{kernel.template.replace('/', '_')}_{digest}")


def _is_bounded(planned: PlannedKernel) -> bool:
    """Whether a kernel's results are on a grid whose numbers half precision holds."""
    last = planned.epilogue[-1] if planned.epilogue else None
    if last is None or last.function != "fake_quantize":
        return False
    scale, zero, low, high, *_ = last.parameters
    return max(abs(low - zero), abs(high - zero)) * scale <= HALF_MAX


@dataclass(frozen=True, kw_only=True)
class _Destination(Storage):
    """The output's storage.

    dirty: whether the kernel must set the lanes past the last channel to zero. bounded: whether what it stores is in
    half's range.
    """

    dirty: bool
    bounded: bool


def _pointer(argument: Argument) -> Pointer:
    """Constants never alias anything. Activations may: a kernel can write its result over an operand."""
    restrict = argument.data is not None and argument.restrict
    return Pointer(argument.name, argument.type, argument.written, restrict)


# PoCL takes 46 ms for a kernel of 1 KB, Intel's runtime 20 ms, and 42 ms for one of 10 KB (seconds of one core of an
# EPYC). The shared models have 92 kernels at most.
MOST_KERNELS = 500

# A place in memory depends on all that are taken at the same time: 100,000 tensors take twenty times as long as 10,000.
MOST_LAUNCHES = 20_000


def check_graph_size(graphs: Iterable[Graph]) -> None:
    """Accept a model whose nodes can be planned in a minute.

    Args:
        graphs: Those of all partitions on the device.

    Raises:
        UnsupportedError: It has more.
    """
    launches = sum(not node.in_place for graph in graphs for node in graph.nodes)
    if launches > MOST_LAUNCHES:
        raise UnsupportedError((f"it takes {launches} launches of kernels, and at most {MOST_LAUNCHES} are planned",))


def check_program_size(sources: Iterable[KernelSource]) -> None:
    """Accept a model whose kernels a CPU's runtime compiles in a minute.

    Args:
        sources: Those of all partitions on the device.

    Raises:
        UnsupportedError: It has more different kernels.
    """
    kernels = sum(len(source.functions) for source in sources)
    if kernels > MOST_KERNELS:
        raise UnsupportedError(
            (
                f"it takes {kernels} different kernels, and at most {MOST_KERNELS} are compiled; "
                "Options.cpu_part.operators leaves operators to the CPU",
            )
        )
