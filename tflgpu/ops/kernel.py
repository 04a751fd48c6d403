"""What planning decides about one node: the template, its parameters, its arguments and how many tiles there are.

A *variant* turns a node into a :class:`Kernel` for one family of devices. Variants are registered by node kind and
device family; a family without one of its own shares the other's only if it is registered for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, Protocol, TypeVar

import numpy as np

from tflgpu.ir import Array, Graph, Node, TensorId
from tflgpu.layout import LANES, Geometry, pack
from tflgpu.target import ITEM_BYTES, ElementType, Target, VectorType, vector_type


@dataclass(frozen=True)
class Storage:
    """How a tensor lies in device memory: PHWC4, or ``linear``, the host's order of a model input or output."""

    geometry: Geometry
    type: ElementType
    linear: bool = False

    def __getattr__(self, name: str) -> int:
        """Templates ask for ``channels``, ``slices``, ``plane`` and the like."""
        if name.startswith("_"):
            raise AttributeError(name)
        value: int = getattr(self.geometry, name)
        return value

    @property
    def vector(self) -> VectorType:
        return vector_type(self.type)

    @property
    def bytes(self) -> int:
        """Size with room for a 16-lane access at any quad, the last included."""
        return (self.geometry.elements + 3 * LANES) * ITEM_BYTES[self.type]

    @property
    def content_bytes(self) -> int:
        """Size of the elements alone, zero lanes included."""
        elements = prod(self.geometry.shape) if self.linear else self.geometry.elements
        return elements * ITEM_BYTES[self.type]


@dataclass(frozen=True)
class Argument:
    """One pointer argument: an activation by tensor id, or a constant by its packed elements."""

    name: str
    type: ElementType
    tensor: TensorId | None = None
    data: Array | None = field(default=None, compare=False, repr=False)
    written: bool = False

    @property
    def bytes(self) -> int:
        """Size of a constant on the device."""
        return 0 if self.data is None else self.data.size * ITEM_BYTES[self.type]


@dataclass(frozen=True)
class Kernel:
    """A node made concrete. ``parameters`` are what the template sees besides the step machinery."""

    template: str
    parameters: Mapping[str, object]
    arguments: tuple[Argument, ...]
    tiles: int
    local_size: int
    scratch: int = 0  # float4 elements of local memory
    macs: int = 0
    value_type: VectorType = "float"  # of the kernel's own result


Choice = tuple[int, ...]  # parameters of a kernel; what they are is its variant's own


class Part(Protocol):
    """What a group or a warp is to compute: one of several ways to divide the work of a kernel."""

    @property
    def choice(self) -> Choice:
        """What tells it from the other ways."""

    @property
    def cycles(self) -> float:
        """How long the kernel takes with it, roughly, as in group_work.py."""


AnyPart = TypeVar("AnyPart", bound=Part)


def likeliest(_: Request, ranked: Sequence[Choice]) -> Choice:
    """The choice that the variant itself would make."""
    return ranked[0]


@dataclass(frozen=True)
class Request:
    """A node to be planned and all that a variant may ask about it. ``chooser``: see :meth:`choose`."""

    node: Node
    graph: Graph
    storage: Mapping[TensorId, Storage]
    target: Target
    chooser: Callable[[Request, Sequence[Choice]], Choice] = likeliest

    def choose(self, ranked: Sequence[Choice]) -> Choice:
        """One of several ways to compute the same, of which ``ranked`` has the one that seems the fastest first.

        A variant asks once at most, and may be given any of them.
        """
        return self.chooser(self, ranked)

    def choose_part(self, ranked: Sequence[AnyPart]) -> AnyPart:
        """:meth:`choose` among parts."""
        parts = {part.choice: part for part in ranked}
        return parts[self.choose(list(parts))]

    @property
    def signature(self) -> str:
        """What the speed of the node's kernels depends on, as text: the same for equal layers of all models."""
        inputs = [(self.graph[t].shape, self.storage.get(t)) for t in self.node.inputs]
        steps = [(s.function, s.operands) for s in self.node.steps]
        return repr((self.node.kind, self.node.attributes, inputs, self.output, steps, self.target))

    @property
    def output(self) -> Storage:
        return self.storage[self.node.output]

    def input(self, index: int) -> Storage:
        return self.storage[self.node.inputs[index]]

    def value(self, index: int) -> Array | None:
        """The value of input ``index`` if it is a constant."""
        return self.graph[self.node.inputs[index]].data

    def constant(self, index: int) -> Array:
        """The value of input ``index``, a constant."""
        data = self.value(index)
        assert data is not None, f"input {index} of {self.node.kind} is no constant"
        return data

    def optional_constant(self, index: int) -> Array | None:
        """The value of kernel input ``index`` if the node has one that no step reads."""
        present = index < len(self.node.inputs) and index not in self.node.step_inputs
        return self.constant(index) if present else None

    def activation(self, name: str, index: int) -> Argument:
        """The argument for input ``index``, an activation."""
        return Argument(name, self.input(index).type, self.node.inputs[index])

    def shape(self, index: int) -> Geometry:
        """The geometry of input ``index``, constant or not."""
        return Geometry(self.graph[self.node.inputs[index]].shape)

    def operand(self, name: str, index: int) -> Argument:
        """The argument for input ``index``, an activation or a constant in PHWC4.

        Vectors and scalars stay in float: they cost nothing, and half precision loses small ones (an epsilon of 1e-5).
        """
        data = self.value(index)
        if data is None:
            return self.activation(name, index)
        if data.dtype.kind != "f":
            return Argument(name, "uchar" if data.dtype.kind == "b" else "int", None, pack(data.astype(np.int32)))
        small = data.size <= max(data.shape, default=1)
        return Argument(name, "float" if small else self.target.storage, None, pack(data.astype(np.float32)))

    def weights(self, name: str, packed: Array) -> Argument:
        """A packed constant in the precision of the model."""
        return Argument(name, self.target.storage, None, packed)


Chooser = Callable[[Request, Sequence[Choice]], Choice]
Variant = Callable[[Request], Kernel]
VARIANTS: dict[tuple[str, Literal["cpu", "gpu"]], Variant] = {}


def variant(kind: str, *families: Literal["cpu", "gpu"]) -> Callable[[Variant], Variant]:
    """Register the decorated function for nodes of ``kind`` on the given families, both by default."""

    def register(function: Variant) -> Variant:
        for family in families or ("cpu", "gpu"):
            assert (kind, family) not in VARIANTS, f"{kind} has two variants for {family}"
            VARIANTS[kind, family] = function
        return function

    return register


def items_per_tile(items: int, target: Target, cost: int) -> int:
    """How many of ``items`` equal pieces of work one tile should take.

    cost: rough floating-point operations of one piece. On a CPU a tile is one work-item's loop: at least some ten
    microseconds, so that starting it does not count, but several tiles for each core, so that none waits for long.
    On a GPU each work-item takes one piece.
    """
    if target.family == "gpu":
        return target.local_size
    enough = max(1, 100_000 // max(1, cost))
    balanced = -(-items // (target.compute_units * 8))
    return min(items, max(enough, balanced))


def tile_count(items: int, per_tile: int) -> int:
    return -(-items // per_tile)
