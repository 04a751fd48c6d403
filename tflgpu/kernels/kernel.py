"""Kernels: the template, its parameters, its arguments and how many tiles there are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

import numpy as np

from tflgpu.graph.ir import Array, Node, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.target import ITEM_BYTES, ElementType, VectorType, vector_type


@dataclass(frozen=True)
class Grid:
    """The numbers that 8-bit integers in memory stand for: (integer - zero) * scale."""

    scale: float
    zero: int

    @property
    def form(self) -> str:
        """Suffix of the names of its loads and stores in programs (``templates/access/grid_storage.cl.j2``)."""
        return f"grid_{np.float32(self.scale).view(np.uint32):08x}_{self.zero}"


class Elements:
    """How kernels load and store what has a type in memory, and perhaps a grid."""

    type: ElementType
    grid: Grid | None

    @property
    def vector(self) -> VectorType:
        """The type of the vec4 that a load gives."""
        return vector_type(self.type) if self.grid is None else "float"

    @property
    def form(self) -> str:
        """Suffix of the names of its loads and stores."""
        return self.type if self.grid is None else self.grid.form


@dataclass(frozen=True)
class Storage(Elements):
    """How a tensor lies in device memory: PHWC4, or ``linear``, the host's order of a model input or output.

    grid: of floats that are stored as integers of 0 to 255, with element type "uchar". An int8 of the model is stored
    as itself + 128. Lanes past the last channel hold ``grid.zero``. A model input that kernels of integers read as it
    is has a grid, too, and its own type.
    """

    geometry: Geometry
    type: ElementType
    linear: bool = False
    grid: Grid | None = None

    def __getattr__(self, name: str) -> int:
        """Return the geometry's ``channels``, ``slices``, ``plane`` and so on, which templates read."""
        if name.startswith("_"):
            raise AttributeError(name)
        value: int = getattr(self.geometry, name)
        return value

    def share(self, shares: int) -> Storage:
        """Return one of several results that lie one after the other along the first axis.

        Args:
            shares: Their number.
        """
        if shares == 1:
            return self
        first, *others = self.geometry.shape
        return replace(self, geometry=Geometry((first // shares, *others)))

    @property
    def bytes(self) -> int:
        """Size with room for a 16-lane access at any vec4, the last included."""
        return (self.geometry.elements + 3 * LANES) * ITEM_BYTES[self.type]

    @property
    def content_bytes(self) -> int:
        """Size of the elements alone, zero lanes included."""
        elements = prod(self.geometry.shape) if self.linear else self.geometry.elements
        return elements * ITEM_BYTES[self.type]


@dataclass(frozen=True)
class Argument(Elements):
    """One pointer argument: an activation by tensor id, or a constant by its packed elements.

    restrict: of a constant, whether compilers are told that nothing overwrites it.
    """

    name: str
    type: ElementType
    tensor: TensorId | None = None
    data: Array | None = field(default=None, compare=False, repr=False)
    written: bool = False
    restrict: bool = True
    grid: Grid | None = None

    def move(self, place: Array) -> None:
        """Hold the elements of a constant elsewhere, so that no weights are held twice.

        Args:
            place: Has the same elements.
        """
        object.__setattr__(self, "data", place)

    @property
    def bytes(self) -> int:
        """Size of a constant on the device."""
        return 0 if self.data is None else self.data.size * ITEM_BYTES[self.type]


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of a template besides epilogue and destination. Each template has a dataclass of its own.

    ``class Mean(Parameters, template="package/mean")`` is that of ``package/mean.cl.j2``, whose head explains the
    fields. A test compares the fields of each with the names that its template uses.

    template: path below ``templates/``, without the suffix.
    stores_once: whether the kernel touches each element of its output once, when it stores it, and what its epilogue
        reads for the element is read before, by the same work-item. Only then may the output take the memory of such an
        operand. Not so are kernels that add up in their output, read it, or compute an element twice. A test runs each
        kernel on such memory.
    """

    template: ClassVar[str]
    stores_once: ClassVar[bool] = False

    def __init_subclass__(cls, template: str | None = None, *, stores_once: bool = False) -> None:
        """Name the template and say how it stores; by default both are those of the class that this one extends."""
        if template is not None:
            cls.template, cls.stores_once = template, stores_once

    @property
    def read_where_stored(self) -> frozenset[str]:
        """Names of arguments that the kernel reads, as its epilogue does, only at the element that it then stores."""
        return frozenset()


@dataclass(frozen=True)
class Kernel:
    """Kernel that a node is lowered to.

    parameters: the template, and what it sees. tiles: work-groups of a launch. local_size: work-items of a work-group.
    workspace: float4 elements of local memory. macs: multiply-adds, of convolutions and matrix products. value_type: of
    the kernel's own result.
    shares: into how many shares a sum is divided. The kernel computes all of them, one result after the other; its
        template, for which there is one result, finds the number of its own in the C variable `share`.
    fills_vectors: whether to tell compilers that each work-item computes with vectors already. One for CPUs that makes
        vectors of several work-items instead gathers all operands (10 times slower).
    takes_sizes: whether its function may take sizes as arguments on CPUs, although it has no products: no element is
        divided by them.
    """

    parameters: Parameters
    arguments: tuple[Argument, ...]
    tiles: int
    local_size: int
    workspace: int = 0
    macs: int = 0
    value_type: VectorType = "float"
    shares: int = 1
    fills_vectors: bool = False
    takes_sizes: bool = False

    @property
    def template(self) -> str:
        """The template's path below ``templates/``, without the suffix."""
        return self.parameters.template


@dataclass(frozen=True)
class Shares:
    """``count`` shares of what ``node`` computes, which has no epilogue, one after the other along the first axis."""

    node: Node
    count: int

    def __repr__(self) -> str:
        """Without the tensors of the node, which are no part of :attr:`Request.signature`."""
        return f"Shares({self.node.kind!r}, {self.node.attributes!r}, {self.count})"


@dataclass(frozen=True)
class Join:
    """``count`` shares as one, by a function of :class:`Reduce`, and that divided by a number."""

    count: int
    function: str = "sum"
    divided_by: int = 1
