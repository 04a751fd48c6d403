"""Architectures of devices, and the lowerings, rewrites and preludes that each of them registers.

An architecture is a folder beside this module. It may refine another: its lowerings come first, and the other's serve
where it has none. Importing :mod:`tflgpu.kernels` imports every folder, so that a new one needs no edit elsewhere.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
            insort(LOWERINGS, Lowering(kind, self, when, lower, best, reads_grids, obstacle), key=Lowering.precedence)
            return lower

        return register

    def rewrite(self, phase: Phase, *, fuses: bool = False) -> Callable[[Rewrite], Rewrite]:
        """Register the decorated function as a pass of a phase, see :class:`RegisteredRewrite`."""

        def register(rewrite: Rewrite) -> Rewrite:
            _add(RegisteredRewrite(rewrite.__name__, self, phase, rewrite, fuses))
            return rewrite

        return register

    def fusion(self, fuse: Fuse) -> Fuse:
        """Register the decorated function as a pass that makes one node of several that one kernel computes faster.

        The one writes what the last of them wrote; what the others wrote nothing else reads.
        """
        _add(RegisteredRewrite(fuse.__name__, self, "fuse", partial(fuse_nodes, fuse), fuses=True))
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
        """Whether it makes the kernel of a request's node."""
        fits = self.kind == request.node.kind and self.architecture.includes(request.target)
        return fits and (self.when is None or self.when(request))


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


def _add(rewrite: RegisteredRewrite) -> None:
    insort(REWRITES, rewrite, key=RegisteredRewrite.precedence)


ARCHITECTURES: list[Architecture] = []
LOWERINGS: list[Lowering] = []  # the first that applies is taken
REWRITES: list[RegisteredRewrite] = []  # of all phases

PORTABLE = Architecture("portable", lambda _: True).register()


def rewrites(phase: Phase) -> list[RegisteredRewrite]:
    """The passes of a phase, in order, for all devices."""
    return [rewrite for rewrite in REWRITES if rewrite.phase == phase]


def lowering_of(request: Request) -> Lowering:
    """The first lowering that applies."""
    return next(lowering for lowering in LOWERINGS if lowering.applies(request))


def sharing_lowering(request: Request) -> Lowering | None:
    """The first lowering that applies of those that can compute shares of sums; None if none applies."""
    return next((lowering for lowering in LOWERINGS if lowering.best is not None and lowering.applies(request)), None)


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
