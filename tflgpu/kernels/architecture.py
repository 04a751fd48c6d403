"""Architectures of devices, and the lowerings, rewrites and preludes that each of them registers.

An architecture is a folder beside this module. It may refine another: its lowerings come first, and the other's serve
where it has none. Importing :mod:`tflgpu.kernels` imports the package of every folder, so that a new one needs no edit
elsewhere. The modules of a package are imported with the first device of its architecture.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, walk_packages
from typing import Literal

from tflgpu.graph.ir import Array
from tflgpu.kernels.candidates import Candidate, Tile, Work
from tflgpu.kernels.chosen_fusions import Fuse, fuse_nodes
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.target import VEC4_BYTES, Target

Lower = Callable[[Request], Kernel]
Best = Callable[[Request], Candidate[Tile, Work] | None]
Rewrite = Callable[[Planning], Planning]

Phase = Literal["fuse", "replace", "divide", "share", "read"]


@dataclass(frozen=True)
class Trial:
    """A kernel of one work-item by which a device is tried before an architecture's instructions are used.

    templates: of the program, one after another; each sees ``context``. inputs: the kernel's first arguments. The last
    one is ``before`` its run, and has to be ``after`` it.
    """

    kernel: str
    templates: tuple[str, ...]
    context: Mapping[str, object]
    inputs: tuple[Array, ...]
    before: Array
    after: Array


@dataclass(frozen=True, eq=False)
class Architecture:
    """Devices that kernels are written for.

    has: whether a device is of it, given that it is of the refined one. prelude: templates with which programs
    for it begin. facts: names that these see, and their values for a device. trial: of a device's integer unit.
    """

    name: str
    has: Callable[[Target], bool]
    refines: Architecture | None = None
    prelude: tuple[str, ...] = ()
    facts: Callable[[Target], Mapping[str, object]] = lambda _: {}
    trial: Callable[[Target], Trial] | None = None

    def includes(self, target: Target) -> bool:
        """Whether a device is of this architecture."""
        return self.has(target) and (self.refines is None or self.refines.includes(target))

    @property
    def depth(self) -> int:
        """How many architectures it refines, one through another."""
        return 0 if self.refines is None else 1 + self.refines.depth

    def register(self) -> Architecture:
        """Make it known to :func:`prelude_templates`; returns itself."""
        insort(ARCHITECTURES, self, key=lambda architecture: architecture.depth)
        return self

    def lowering(
        self,
        kind: str,
        when: Callable[[Request], bool] | None = None,
        best: Best | None = None,
        *,
        reads_grids: bool = False,
        obstacle: Callable[[Request], str | None] | None = None,
    ) -> Callable[[Lower], Lower]:
        """Register the decorated function for nodes of ``kind``.

        when: what must be true of a request as well. best, reads_grids, obstacle: see :class:`Lowering`.
        """

        def register(lower: Lower) -> Lower:
            lowerings = LOWERINGS.setdefault(kind, [])
            lowerings.append(Lowering(kind, self, when, lower, best, reads_grids, obstacle))
            return lower

        return register

    def rewrite(self, phase: Phase, *, fuses: bool = False) -> Callable[[Rewrite], Rewrite]:
        """Register the decorated function as a pass of a phase, see :class:`RegisteredRewrite`."""

        def register(rewrite: Rewrite) -> Rewrite:
            REWRITES.append(RegisteredRewrite(rewrite.__name__, self, phase, rewrite, fuses))
            return rewrite

        return register

    def fusion(self, fuse: Fuse) -> Fuse:
        """Register the decorated function as a pass that makes one node of several that one kernel computes faster.

        The one writes what the last of them wrote; what the others wrote nothing else reads.
        """
        REWRITES.append(RegisteredRewrite(fuse.__name__, self, "fuse", partial(fuse_nodes, fuse), fuses=True))
        return fuse


@dataclass(frozen=True)
class Lowering:
    """How nodes of one kind become kernels, on one architecture.

    when: what else must be true; None for nothing. best: the fastest tile of the kernel by the cost model; None where
    it cannot compute as many shares of sums. A lowering without it computes no shares. reads_grids: whether the
    kernel converts 8-bit integers on a grid to floats when it loads its inputs, those of the epilogue aside.
    obstacle: of one that multiplies integers, why it cannot for a request, for reports.
    """

    kind: str
    architecture: Architecture
    when: Callable[[Request], bool] | None
    lower: Lower
    best: Best | None = None
    reads_grids: bool = False
    obstacle: Callable[[Request], str | None] | None = None

    def precedence(self) -> tuple[int, bool]:
        """Refining architectures before refined ones, conditions before none."""
        return -self.architecture.depth, self.when is None

    def applies(self, request: Request) -> bool:
        """Whether it makes the kernel of a node of its kind, on a device of its architecture."""
        return self.when is None or self.when(request)


@dataclass(frozen=True)
class RegisteredRewrite:
    """A pass over the graph for the devices of an architecture.

    Passes run by phase: "fuse" makes one node of several, "replace" another node of one, "divide" several of one,
    because of what it computes, and "share" divides the sums of nodes among kernels. Within a phase, passes of refined
    architectures come before those of refining ones, and then the names decide; they must not depend on each other.
    fuses: whether tensors are left out that no kernel stores any more.
    """

    name: str
    architecture: Architecture
    phase: Phase
    run: Rewrite
    fuses: bool = False

    def precedence(self) -> tuple[int, str]:
        """By what rewrites of a phase are sorted: the most general architecture first."""
        return self.architecture.depth, self.name


ARCHITECTURES: list[Architecture] = []
LOWERINGS: dict[str, list[Lowering]] = {}  # by kind, as they were registered
REWRITES: list[RegisteredRewrite] = []  # of all phases, as they were registered

PORTABLE = Architecture("portable", lambda _: True).register()


def architectures(target: Target | None = None) -> list[Architecture]:
    """Those that a device is of, the most general first, once their modules are imported; without a device all."""
    included = [each for each in ARCHITECTURES if target is None or each.includes(target)]
    _import_modules(frozenset(each.name for each in included))
    return included


@cache
def _import_modules(architectures: frozenset[str]) -> None:
    """Those of every folder, but for other architectures'."""
    others = {each.name for each in ARCHITECTURES} - architectures
    for folder in iter_modules([str(Path(__file__).parent)], "tflgpu.kernels."):
        if folder.ispkg and folder.name.rpartition(".")[2] not in others:
            for module in walk_packages(import_module(folder.name).__path__, f"{folder.name}."):
                import_module(module.name)


def rewrites(phase: Phase, target: Target | None = None) -> list[RegisteredRewrite]:
    """The passes of a phase for a device, in order; without a device, for all of them."""
    included = architectures(target)
    registered = (each for each in REWRITES.copy() if each.phase == phase and each.architecture in included)
    return sorted(registered, key=RegisteredRewrite.precedence)


def lowerings(kind: str, target: Target) -> list[Lowering]:
    """What makes kernels of nodes of a kind on a device, in order."""
    included = architectures(target)
    registered = (each for each in LOWERINGS.get(kind, []).copy() if each.architecture in included)
    return sorted(registered, key=Lowering.precedence)


def lowering_of(request: Request) -> Lowering:
    """The first lowering that applies.

    Where none does, it is one for every device in the folder of another architecture, which is imported then.
    """
    found = next(_applying(request), None)
    if found is None:
        architectures()
        found = next(_applying(request))
    return found


def sharing_lowering(request: Request) -> Lowering | None:
    """The first lowering that applies of those that can compute shares of sums; None if none applies."""
    return next((each for each in _applying(request) if each.best is not None), None)


def _applying(request: Request) -> Iterator[Lowering]:
    return (each for each in lowerings(request.node.kind, request.target) if each.applies(request))


def lower_node(request: Request) -> Kernel:
    """The kernel of a node, by the first lowering that applies. Raises ValueError if the device cannot run it."""
    kernel = lowering_of(request).lower(request)
    items, local_bytes, limits = kernel.local_size, kernel.workspace * VEC4_BYTES, request.target.limits
    if items > limits.work_group_size or local_bytes > limits.local_bytes:
        raise ValueError(
            f"groups of {items} work-items with {local_bytes} bytes of local memory were planned for a device with "
            f"{limits.work_group_size} and {limits.local_bytes}"
        )
    return kernel


def prelude_templates(target: Target) -> tuple[tuple[str, Mapping[str, object]], ...]:
    """What programs for ``target`` begin with: templates, and the names that each of them sees."""
    included = (architecture for architecture in ARCHITECTURES if architecture.includes(target))
    return tuple(
        (template, architecture.facts(target)) for architecture in included for template in architecture.prelude
    )
