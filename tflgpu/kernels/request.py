"""A node to be lowered to a kernel, and all that a lowering may ask about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from tflgpu.graph.ir import Array, Graph, Node, TensorId
from tflgpu.graph.layout import Geometry, pack
from tflgpu.kernels.kernel import Argument, Storage
from tflgpu.target import Target

TileConfig = tuple[int, ...]  # parameters of a kernel; what they are is its variant's own


class Candidate(Protocol):
    """What a group or a warp is to compute: one of several ways to divide the work of a kernel."""

    @property
    def config(self) -> TileConfig:
        """What tells it from the other ways."""

    @property
    def cycles(self) -> float:
        """How long the kernel takes with it, roughly, as in group_work.py."""


AnyCandidate = TypeVar("AnyCandidate", bound=Candidate)


def first_ranked(_: Request, ranked: Sequence[TileConfig]) -> TileConfig:
    """The choice that the variant itself would make."""
    return ranked[0]


@dataclass(frozen=True)
class Request:
    """A node to be planned and all that a variant may ask about it. ``chooser``: see :meth:`choose`."""

    node: Node
    graph: Graph
    storage: Mapping[TensorId, Storage]
    target: Target
    chooser: Callable[[Request, Sequence[TileConfig]], TileConfig] = first_ranked

    def choose(self, ranked: Sequence[TileConfig]) -> TileConfig:
        """One of several ways to compute the same, of which ``ranked`` has the one that seems the fastest first.

        A variant asks once at most, and may be given any of them.
        """
        return self.chooser(self, ranked)

    def choose_candidate(self, ranked: Sequence[AnyCandidate]) -> AnyCandidate:
        """:meth:`choose` among parts."""
        candidates = {candidate.config: candidate for candidate in ranked}
        return candidates[self.choose(list(candidates))]

    @property
    def signature(self) -> str:
        """What the speed of the node's kernels depends on, as text: the same for equal layers of all models."""
        inputs = [(self.graph[t].shape, self.storage.get(t)) for t in self.node.inputs]
        epilogue = [(s.function, s.operands) for s in self.node.epilogue]
        return repr((self.node.kind, self.node.attributes, inputs, self.output, epilogue, self.target))

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
        present = index < len(self.node.inputs) and index not in self.node.epilogue_inputs
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


Chooser = Callable[[Request, Sequence[TileConfig]], TileConfig]
