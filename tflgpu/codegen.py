"""Plan -> OpenCL C. The only module that imports jinja2.

Every kernel of the plan becomes a C function of a tile (``void name(pointers, int tile, __local float4 *scratch)``);
nodes whose functions have the same text share one. Two executors wrap the functions: :func:`render` makes one
``__kernel`` of each, where work-group i computes tile i; :func:`render_persistent` one of all, which goes through the
launches of an executable.

Nothing that a model says as text reaches the source: templates see shapes, numbers and names made up here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import isinf, isnan
from pathlib import Path
from typing import Any

import jinja2

from tflgpu.executable import Executable, Launch, Persistent, Slot
from tflgpu.ops.kernel import Argument
from tflgpu.plan import Plan, PlannedKernel

PLACEHOLDER = "KERNEL"
PERSISTENT = "persistent"


@dataclass(frozen=True)
class Function:
    """One tile function and its launch wrapper; both need the prelude before them.

    pointers: the types of its arguments. scratch: float4 elements of local memory.
    """

    name: str
    tile: str
    wrapper: str
    pointers: tuple[str, ...]
    scratch: int

    @property
    def source(self) -> str:
        return self.tile + self.wrapper


@dataclass(frozen=True)
class KernelSource:
    """The distinct functions of a plan, and for each of its kernels the name of the one it launches.

    prelude: what the program begins with.
    """

    prelude: str
    functions: tuple[Function, ...]
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it as one compilation unit."""
        return "\n".join((self.prelude, *(f.source for f in self.functions)))


def render(plan: Plan) -> KernelSource:
    """The source of every kernel of ``plan``."""
    functions: dict[str, Function] = {}
    names = []
    for planned in plan.kernels:
        tile, wrapper = _render_tile(planned), _render_wrapper(planned)
        digest = hashlib.blake2b((tile + wrapper).encode(), digest_size=6).hexdigest()
        name = f"{planned.kernel.template}_{digest}"
        if name not in functions:
            texts = tile.replace(PLACEHOLDER, name), wrapper.replace(PLACEHOLDER, name)
            functions[name] = Function(name, *texts, tuple(map(_pointer, planned.arguments)), planned.kernel.scratch)
        names.append(name)
    target = plan.target
    begin = prelude(ptx=target.ptx, matrix_units=target.matrix_units)
    return KernelSource(begin, tuple(functions.values()), tuple(names))


def render_persistent(source: KernelSource, executable: Executable, *, ptx: bool) -> tuple[str, Persistent]:
    """The launches of ``executable`` as one kernel: its program, and what the executor must know of it.

    ptx: whether the device's compiler takes NVIDIA's inline assembly.
    """
    launches = executable.launches
    ports = {executable.ports[number].slot: f"port{number}" for number in executable.movable}
    local_size = max((launch.local_size for launch in launches), default=1)
    assert all(launch.local_size == local_size for launch in launches), "kernels of one family share their local size"
    order = sorted(range(len(launches)), key=lambda number: launches[number].level)
    kernel = (
        _environment()
        .get_template(f"{PERSISTENT}.cl.j2")
        .render(
            function=PERSISTENT,
            buffers=len(executable.buffers),
            ports=list(ports.values()),
            results=executable.results,
            local_size=local_size,
            scratch=max((f.scratch for f in source.functions), default=0),
            launches=len(order),
            cases=_cases({f.name: f for f in source.functions}, [launches[number] for number in order], ports),
            within_levels=[
                place
                for place, (number, following) in enumerate(pairwise(order))
                if launches[number].level == launches[following].level
            ],
        )
    )
    grid = _environment().get_template("grid_ptx.cl.j2" if ptx else "grid.cl.j2").render()
    tiles = (f"static inline {f.tile}" for f in source.functions)
    text = "\n".join((source.prelude, grid, *tiles, kernel))
    return text, Persistent(PERSISTENT, local_size, tuple(order), clock=ptx)


def _cases(
    functions: Mapping[str, Function], launches: Sequence[Launch], ports: Mapping[Slot, str]
) -> list[dict[str, Any]]:
    """Equal launches: their places in the order, their tiles, and their call, which may hang on ``place``."""
    places: dict[tuple[str, int], list[int]] = {}
    for place, launch in enumerate(launches):
        places.setdefault((launch.function, launch.groups), []).append(place)
    return [
        {
            "places": own,
            "tiles": tiles,
            "call": f"{name}_tile({', '.join(_arguments(functions[name], own, launches, ports))}, tile, scratch)",
        }
        for (name, tiles), own in places.items()
    ]


def _arguments(
    function: Function, places: Sequence[int], launches: Sequence[Launch], ports: Mapping[Slot, str]
) -> Iterator[str]:
    """An expression for each pointer of a function that launches at several places call."""
    for i, pointer in enumerate(function.pointers):
        slots = {place: launches[place].arguments[i] for place in places}
        *others, last = places
        choices = (f"place == {p} ? {_address(pointer, slots[p], ports)} : " for p in others if slots[p] != slots[last])
        yield "".join((*choices, _address(pointer, slots[last], ports)))


def _address(pointer: str, slot: Slot, ports: Mapping[Slot, str]) -> str:
    place = ports.get(slot) or f"buffer{slot.buffer} + {slot.offset}"
    return f"({pointer.replace('restrict', '').strip()}){place}"


@cache
def prelude(*, ptx: bool, matrix_units: bool) -> str:
    """What every program begins with, see :class:`tflgpu.target.Target`."""
    names = ["storage", *["storage_ptx"] * ptx, *["matrix_units_ptx"] * matrix_units]
    return "\n".join(_environment().get_template(f"{name}.cl.j2").render() for name in names)


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


def _render_tile(planned: PlannedKernel) -> str:
    """The function that computes one tile."""
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
    parameters = ", ".join(
        [*(f"{_pointer(a)}{a.name}" for a in planned.arguments), "int tile", "__local float4 *scratch"]
    )
    body = "\n".join(line.rstrip() for line in body.splitlines() if line.strip())
    return f"void {PLACEHOLDER}_tile({parameters}) {{\n{body}\n}}\n"


def _render_wrapper(planned: PlannedKernel) -> str:
    """The kernel in which work-group i computes tile i."""
    kernel, arguments = planned.kernel, planned.arguments
    launch = ", ".join(f"{_pointer(a)}{a.name}, ulong {a.name}_offset" for a in arguments)
    passed = ", ".join(f"{a.name} + {a.name}_offset" for a in arguments)
    local = f"__local float4 scratch[{kernel.scratch}];\n  " if kernel.scratch else ""
    scratch = "scratch" if kernel.scratch else "(__local float4 *)0"
    return (
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
