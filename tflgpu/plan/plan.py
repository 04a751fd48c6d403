"""The plan: everything about a compiled model but the device's own binary. Plain data, made without a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.kernels.access import Access
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.target import Target, VectorType


@dataclass(frozen=True)
class EpilogueOperand:
    """An earlier value by its number, or an input by its access."""

    value: int | None
    access: Access | None


@dataclass(frozen=True)
class PlannedEpilogueOp:
    """An epilogue op as templates see it: value ``index`` of vector type ``type``; ``parameters`` are numbers.

    source: the type of its first operand.
    """

    index: int
    function: str
    operands: tuple[EpilogueOperand, ...]
    parameters: tuple[float, ...]
    type: VectorType
    source: VectorType


@dataclass(frozen=True)
class Destination:
    """The output as templates see it. ``dirty``: lanes past the last channel may not be zero and must be made so."""

    storage: Storage
    dirty: bool


@dataclass(frozen=True)
class PlannedKernel:
    """One launch. ``arguments`` begin with ``dst``. key: see :meth:`tflgpu.kernels.request.Request.key`."""

    key: str
    node: Node
    kernel: Kernel
    epilogue: tuple[PlannedEpilogueOp, ...]
    destination: Destination
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Placement:
    """Where every activation lives.

    roots: the tensor whose memory each one has. A view has its source's, an input of an eliminated concatenation that
        of the result, a state's next value that of its last one where no kernel needs both.
    shifts: where in that memory inputs of eliminated concatenations begin, in bytes; all others begin at 0.
    offsets: arena offset in bytes of each tensor that is neither input, output nor state; a view has its source's.
    arena_bytes: size of the arena. arena_part: of each of its buffers but the last.
    arena_lower_bound: the largest sum of tensors alive at once.
    """

    roots: Mapping[TensorId, TensorId]
    shifts: Mapping[TensorId, int]
    offsets: Mapping[TensorId, int]
    arena_bytes: int
    arena_part: int
    arena_lower_bound: int


@dataclass(frozen=True)
class Plan(Placement):
    """Kernels in order, and where every activation lives.

    fusions: of the model's operators, whether one kernel computes them, where the chooser was against the cost model.
    """

    graph: Graph
    target: Target
    kernels: tuple[PlannedKernel, ...]
    storage: Mapping[TensorId, Storage]
    fusions: Mapping[tuple[int, ...], bool] = field(default_factory=dict)

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants of all kernels."""
        return sum(a.bytes for k in self.kernels for a in k.arguments if a.data is not None)

    def place(self, tensor: TensorId) -> str:
        """Return the memory in which an activation lies: ``"input"``, ``"output"``, ``"state"`` or ``"arena"``.

        Args:
            tensor: An activation; a view lies where its source lies.
        """
        root = self.roots[tensor]
        states = [t for s in self.graph.states for t in (s.read, s.written)]
        for place, boundary in (("input", self.graph.inputs), ("output", self.graph.outputs), ("state", states)):
            if root in (self.roots[t] for t in boundary):
                return place
        return "arena"


def traffic(plan: Plan, planned: PlannedKernel) -> int:
    """Return the bytes of all that a kernel reads, once each, and of all that it writes.

    A kernel that reads only some elements of a tensor (a slice, a lookup) counts as if it read all. What a kernel reads
    twice counts once, wherever it comes from.

    Args:
        plan: The kernel's.
        planned: The kernel.
    """
    tensors = (a.tensor for a in planned.arguments if a.tensor is not None and not a.written)
    read = {(plan.roots[t], plan.shifts.get(t, 0)): t for t in tensors}
    constants = {id(a.data): a.bytes for a in planned.arguments if a.data is not None}
    activations = (*read.values(), planned.node.output)
    return sum(plan.storage[t].content_bytes for t in activations) + sum(constants.values())
