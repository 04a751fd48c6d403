"""Architectures of devices, and the lowerings, rewrites and preludes that each of them registers.

An architecture is a folder beside this module. It may refine another: its lowerings come first, and the other's serve
where it has none. Importing :mod:`tflgpu.kernels` imports the package of every folder, so that a new one needs no edit
elsewhere. A package lists in ``KERNELS`` its modules that register something. They are imported with the first device
of its architecture, those of a folder that is no architecture with the first device.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, update_wrapper
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Literal, TypeVar

from tflgpu.graph.ir import Array
from tflgpu.kernels.candidates import Candidate, Tile, Work
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Fuse, Planning, fuse_nodes
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
        after: tuple[str, ...] = (),
        reads_grids: bool = False,
        obstacle: Callable[[Request], str | None] | None = None,
    ) -> Callable[[Lower], Lower]:
        """Register the decorated function for nodes of ``kind``.

        Args:
            kind: The kind of the nodes.
            when: The condition that a request has to fulfil as well.
            best: The fastest tile, see :class:`Lowering`.
            after: The names of the architecture's lowerings that are taken where this one applies as well.
            reads_grids: Whether the kernel converts integers on a grid, see :class:`Lowering`.
            obstacle: The reason why it does not apply, see :class:`Lowering`.

        Returns:
            The decorator.
        """

        def register(lower: Lower) -> Lower:
            lowering = Lowering(kind, self, when, lower, best, reads_grids, obstacle, after)
            registered = declared_order([*LOWERINGS.get(kind, []), lowering])
            LOWERINGS[kind] = sorted(registered, key=Lowering.precedence)
            return lower

        return register

    def rewrite(
        self, phase: Phase, *, after: tuple[str, ...] = (), fuses: bool = False
    ) -> Callable[[Rewrite], Rewrite]:
        """Register the decorated function as a pass of a phase.

        Args:
            phase: The phase, see :class:`RegisteredRewrite`.
            after: The names of the passes of the phase that have to run before, such as "gpu.fuse_excitations".
            fuses: Whether tensors are left out that no kernel stores any more.

        Returns:
            The decorator.
        """

        def register(rewrite: Rewrite) -> Rewrite:
            _register(RegisteredRewrite(f"{self.name}.{rewrite.__name__}", self, phase, rewrite, after, fuses))
            return rewrite

        return register

    def fusion(self, *, after: tuple[str, ...] = ()) -> Callable[[Fuse], Fuse]:
        """Register the decorated function as a pass that makes one node of several that one kernel computes faster.

        The one writes what the last of them wrote; what the others wrote nothing else reads.

        Args:
            after: The names of the fusions that have to run before, as in :meth:`rewrite`.

        Returns:
            The decorator.
        """

        def register(fuse: Fuse) -> Fuse:
            self.rewrite("fuse", after=after, fuses=True)(update_wrapper(partial(fuse_nodes, fuse), fuse))
            return fuse

        return register


@dataclass(frozen=True)
class Lowering:
    """How nodes of one kind become kernels, on one architecture.

    when: what else must be true; None for nothing. best: the fastest tile of the kernel by the cost model; None where
    it cannot compute as many shares of sums. A lowering without it computes no shares. reads_grids: whether the
    kernel converts 8-bit integers on a grid to floats when it loads its inputs, those of the epilogue aside.
    obstacle: of one that multiplies integers, why it cannot for a request, for reports. after: the names of those of
    its architecture that are taken where both apply; of two that name none, one applies at most.
    """

    kind: str
    architecture: Architecture
    when: Callable[[Request], bool] | None
    lower: Lower
    best: Best | None = None
    reads_grids: bool = False
    obstacle: Callable[[Request], str | None] | None = None
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which others name it in their ``after``."""
        return self.lower.__name__

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
    because of what it computes, and "share" divides the sums of nodes among kernels. Within a phase, a pass runs after
    those that it names in ``after``; otherwise plans do not depend on the order. fuses: whether tensors are left out
    that no kernel stores any more.
    """

    name: str
    architecture: Architecture
    phase: Phase
    run: Rewrite
    after: tuple[str, ...] = ()
    fuses: bool = False


ARCHITECTURES: list[Architecture] = []
# In their declared order. Where none is declared, plans do not depend on it.
LOWERINGS: dict[str, list[Lowering]] = {}  # by kind
REWRITES: list[RegisteredRewrite] = []  # of all phases

Registered = TypeVar("Registered", Lowering, RegisteredRewrite)


def declared_order(registered: Sequence[Registered]) -> list[Registered]:
    """Sort what is registered so that each comes after those that it names in ``after``.

    Args:
        registered: Lowerings of one kind, or rewrites, in any order.

    Returns:
        The same; those that name none in the order that they had.

    Raises:
        graphlib.CycleError: Some come after each other.
    """
    before = {each: [other for other in registered if other.name in each.after] for each in registered}
    return list(TopologicalSorter(before).static_order())


def _register(rewrite: RegisteredRewrite) -> None:
    REWRITES[:] = declared_order([*REWRITES, rewrite])


PORTABLE = Architecture("portable", lambda _: True).register()


def architectures(target: Target | None = None) -> list[Architecture]:
    """Return the architectures of a device, the most general first, once their modules are imported.

    Args:
        target: The device; None for all architectures.
    """
    included = [each for each in ARCHITECTURES if target is None or each.includes(target)]
    _import_modules(frozenset(each.name for each in included))
    return included


@cache
def _import_modules(architectures: frozenset[str]) -> None:
    """Import the modules that register something, of every folder but other architectures'."""
    others = {each.name for each in ARCHITECTURES} - architectures
    for folder in iter_modules([str(Path(__file__).parent)], "tflgpu.kernels."):
        if folder.ispkg and folder.name.rpartition(".")[2] not in others:
            for module in import_module(folder.name).KERNELS:
                import_module(f"{folder.name}.{module}")


def rewrites(phase: Phase, target: Target | None = None) -> list[RegisteredRewrite]:
    """Return the passes of a phase for a device, in order.

    Args:
        phase: The phase.
        target: The device; None for the passes of all devices.
    """
    included = architectures(target)
    return [each for each in REWRITES.copy() if each.phase == phase and each.architecture in included]


def lowerings(kind: str, target: Target) -> list[Lowering]:
    """Return what makes kernels of nodes of a kind on a device, in order.

    Args:
        kind: The nodes'.
        target: The device.
    """
    included = architectures(target)
    return [each for each in LOWERINGS.get(kind, []) if each.architecture in included]


def lowering_of(request: Request) -> Lowering:
    """Return the first lowering that applies."""
    return next(_applying(request))


def sharing_lowering(request: Request) -> Lowering | None:
    """Return the first lowering that applies of those that can compute shares of sums; None if none applies."""
    return next((each for each in _applying(request) if each.best is not None), None)


def _applying(request: Request) -> Iterator[Lowering]:
    return (each for each in lowerings(request.node.kind, request.target) if each.applies(request))


def lower_node(request: Request) -> Kernel:
    """Return the kernel of a node, by the first lowering that applies. Raises ValueError if the device cannot run
    it."""
    kernel = lowering_of(request).lower(request)
    items, local_bytes, limits = kernel.local_size, kernel.workspace * VEC4_BYTES, request.target.limits
    if items > limits.work_group_size or local_bytes > limits.local_bytes:
        raise ValueError(
            f"groups of {items} work-items with {local_bytes} bytes of local memory were planned for a device with "
            f"{limits.work_group_size} and {limits.local_bytes}"
        )
    return kernel


def prelude_templates(target: Target) -> tuple[tuple[str, Mapping[str, object]], ...]:
    """Return what programs for ``target`` begin with: templates, and the names that each of them sees."""
    included = (architecture for architecture in ARCHITECTURES if architecture.includes(target))
    return tuple(
        (template, architecture.facts(target)) for architecture in included for template in architecture.prelude
    )
