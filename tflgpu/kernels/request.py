"""A node to be lowered to a kernel, and all that a lowering may ask about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeVar

import numpy as np

from tflgpu.graph.ir import Array, Graph, Node, TensorId
from tflgpu.graph.layout import Geometry, geometry_of, pack
from tflgpu.kernels.access import Access, access, moved_access
from tflgpu.kernels.candidates import AnyTile, AnyWork, Candidate, TileConfig
from tflgpu.kernels.kernel import Argument, Storage
from tflgpu.ops.movement.shaping import Strided
from tflgpu.target import DEVICE_ELEMENTS, HALF_MAX, HOST_DTYPES, WIDE, ElementType, Target, vector_of

# The configurations of a node that takes the place of several: as one kernel, or as theirs.
FUSED: TileConfig = (1,)
APART: TileConfig = (0,)


AnyAttributes = TypeVar("AnyAttributes")


def first_ranked(_: Request, ranked: Sequence[TileConfig]) -> TileConfig:
    """Return the configuration that the cost model ranks first.

    Args:
        ranked: The fastest first.
    """
    return ranked[0]


def constant_element(dtype: str) -> ElementType:
    """Return the element type of a constant in device memory where nothing asks for another.

    Args:
        dtype: Numpy's name of its type.
    """
    if vector_of(dtype) in WIDE:
        return DEVICE_ELEMENTS[dtype]
    kind = np.dtype(dtype).kind
    return "float" if kind == "f" else "uchar" if kind == "b" else "int"


@dataclass(frozen=True)
class Request:
    """A node to be lowered to a kernel, and all that a lowering may ask about it.

    chooser: what chooses among tile configurations, see :meth:`choose`. parts: the nodes that ``node`` takes the place
    of, where the question is whether it is to do so; else none. shares: of the sum that the kernel is to compute, see
    :mod:`tflgpu.kernels.gpu.shared_sums`.
    """

    node: Node
    graph: Graph
    storage: Mapping[TensorId, Storage]
    target: Target
    chooser: Callable[[Request, Sequence[TileConfig]], TileConfig] = first_ranked
    parts: tuple[Node, ...] = ()
    shares: int = 1

    def choose(self, ranked: Sequence[TileConfig]) -> TileConfig:
        """Return one of several tile configurations. A lowering asks once at most, and may be given any of them.

        Args:
            ranked: The one that seems the fastest comes first.
        """
        return self.chooser(self, ranked)

    def choose_number(self, ranked: Iterable[int]) -> int:
        """Return one of several numbers, as :meth:`choose` does.

        Args:
            ranked: The one that seems the fastest comes first; it may come again.
        """
        (number,) = self.choose([(number,) for number in dict.fromkeys(ranked)])
        return number

    def choose_candidate(self, candidates: Sequence[Candidate[AnyTile, AnyWork]]) -> Candidate[AnyTile, AnyWork]:
        """Return one of several candidates, as :meth:`choose` does.

        Args:
            candidates: The one that seems the fastest comes first.
        """
        by_config = {candidate.tile.config: candidate for candidate in candidates}
        return by_config[self.choose(list(by_config))]

    def chooses_fusion(self, seems_faster: bool) -> bool:
        """Return whether the node takes the place of its parts, as :meth:`choose` decides.

        Args:
            seems_faster: Whether the cost model would do so.
        """
        return self.choose((FUSED, APART) if seems_faster else (APART, FUSED)) == FUSED

    @property
    def signature(self) -> str:
        """Text of all that the choice depends on: the same for equal layers of all models."""
        inputs = [(self.graph[t].shape, self.storage.get(t)) for t in self.node.inputs]
        epilogue = [(s.function, s.operands) for s in self.node.epilogue]
        limits = self.target.limits.work_group_size, self.target.limits.local_bytes
        parts = tuple(part.kind for part in self.parts)
        kind = self.node.kind, self.node.attributes, self.shares, self.node.views
        return repr((kind, inputs, self.output, epilogue, self.target, limits, parts))

    def key(self, chosen: Sequence[TileConfig]) -> str:
        """Return a name of the kernel that a lowering makes of this.

        It is made of what a kernel is planned from, not of its text, and names no tensors: equal layers of all models
        have the same. Kernels that differ in the values of constants may have the same, too.

        Args:
            chosen: The tile configurations that the lowering has chosen.
        """
        return blake2b(repr((self.signature, chosen)).encode(), digest_size=8).hexdigest()

    def attributes(self, kind: type[AnyAttributes]) -> AnyAttributes:
        """Return the node's attributes.

        Args:
            kind: Their class.
        """
        attributes = self.node.attributes
        assert isinstance(attributes, kind)
        return attributes

    @property
    def output(self) -> Storage:
        """How the node's output lies in memory."""
        return self.storage[self.node.output]

    def input(self, index: int) -> Storage:
        """Return how an input lies in memory, be it an activation or a constant that takes the place of one.

        Args:
            index: The input's number.
        """
        tensor = self.node.inputs[index]
        return self.storage.get(tensor) or Storage(self.shape(index), constant_element(self.graph[tensor].dtype))

    def value(self, index: int) -> Array | None:
        """Return the value of an input if it is a constant; else None.

        Args:
            index: The input's number.
        """
        return self.graph[self.node.inputs[index]].data

    def is_constant(self, index: int) -> bool:
        """Whether an input is a constant.

        Args:
            index: The input's number.
        """
        return self.graph[self.node.inputs[index]].is_constant

    def constant(self, index: int) -> Array:
        """Return the value of an input that is a constant.

        Args:
            index: The input's number.
        """
        data = self.value(index)
        assert data is not None, f"input {index} of {self.node.kind} is no constant"
        return data

    def optional_constant(self, index: int) -> Array | None:
        """Return the value of a kernel input; None if the node has none that its epilogue does not read.

        Args:
            index: The input's number; it is a constant if it is there.
        """
        return self.constant(index) if self._reads(index) else None

    def is_computed(self, index: int) -> bool:
        """Whether the node has a kernel input that is no constant.

        Args:
            index: The input's number.
        """
        return self._reads(index) and not self.is_constant(index)

    def _reads(self, index: int) -> bool:
        """Whether the node has an input ``index`` that its epilogue does not read."""
        return index < len(self.node.inputs) and index not in self.node.epilogue_inputs

    def activation(self, name: str, index: int) -> Argument:
        """Return the argument for an activation, or in its place for a constant in PHWC4, floats in float.

        Args:
            name: The argument's in C.
            index: The input's number.
        """
        element, data = self.input(index).type, self.value(index)
        if data is None:
            return Argument(name, element, self.node.inputs[index], grid=self.input(index).grid)
        return Argument(name, element, None, pack(data.astype(HOST_DTYPES[element])))

    def shape(self, index: int) -> Geometry:
        """Return the geometry of an input, constant or not.

        Args:
            index: The input's number.
        """
        return geometry_of(self.graph[self.node.inputs[index]].shape)

    def operand(self, name: str, index: int) -> Argument:
        """Return the argument for an activation or a constant in PHWC4.

        Vectors and scalars stay in float: they cost nothing, and half precision loses small ones (an epsilon of 1e-5).
        So does what half precision cannot reach: a mask of -1e9.

        Args:
            name: The argument's in C.
            index: The input's number.
        """
        data = self.value(index)
        if data is None:
            return self.activation(name, index)
        element = constant_element(data.dtype.name)
        if element != "float":
            return Argument(name, element, None, pack(data.astype(HOST_DTYPES[element])))
        small = data.size <= max(data.shape, default=1)
        kept = small or np.abs(data, where=np.isfinite(data), out=np.zeros(data.shape)).max(initial=0) > HALF_MAX
        return Argument(name, "float" if kept else self.target.storage, None, pack(data.astype(np.float32)))

    def operand_access(self, argument: Argument, index: int) -> Access:
        """Return where kernels read an input for an element of the output, as an operand of its shape or smaller.

        Args:
            argument: The input's.
            index: The input's number.
        """
        view, output = dict(self.node.views).get(index), self.output.geometry.shape
        if view is None:
            return access(argument.name, argument, self.shape(index).shape, output)
        assert isinstance(view, Strided)
        return moved_access(argument.name, argument, self.shape(index), view, output)

    def factor_type(self, *elements: ElementType) -> Literal["float", "half"]:
        """Return the type in which a kernel multiplies: half only if all operands are stored in half.

        Args:
            *elements: The types in which operands are stored.
        """
        return "half" if self.target.arithmetic == "half" and set(elements) == {"half"} else "float"

    def weights(self, name: str, packed: Array) -> Argument:
        """Return a packed constant in the precision of the model.

        Args:
            name: The argument's in C.
            packed: The constant in the kernel's order.
        """
        return Argument(name, self.target.storage, None, packed)


Chooser = Callable[[Request, Sequence[TileConfig]], TileConfig]
