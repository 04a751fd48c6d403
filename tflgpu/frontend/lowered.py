"""Results of lowering: the graph, and what became of each operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tflgpu.frontend.control_flow.pieces import Call
from tflgpu.graph.ir import Graph, Tensor
from tflgpu.graph.layout import Shape
from tflgpu.model.checks import LEAST_CUSTOM
from tflgpu.model.model import FileTensor
from tflgpu.model.run_time_numbers import Trim
from tflgpu.model.tensor_info import TensorIndex

# Custom operators that LiteRT, hence a CPU fallback, can run. Any other name is unknown.
KNOWN_CUSTOM = frozenset(LEAST_CUSTOM)


@dataclass(frozen=True)
class Entry:
    """Decision of the lowering about one operator of the model.

    reasons: why it cannot run on the device. cpu_reasons: why LiteRT cannot run it either. notes: how its result may
    differ from that of the file's integers.
    """

    index: int
    code: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    custom: bool
    cpu_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lowered:
    """The graph of all operators that can run, and an entry for each operator whether it can or not.

    ``graph`` is complete, and fit to run, only if :attr:`is_whole`. ``inputs`` and ``outputs`` are the file's
    tensors after the graph's, in the same order, under the names that callers use.
    bound: what stands for each tensor of the file, with its shape, and its value if that is known before a run.
    open: tensors of the file whose shape only a run can tell.
    checks: faults that a run must not find. After the outputs the graph has a boolean for each.
    calls: operators that the device runs apart from the others, by index.
    trims: what a run cuts off of the outputs. After the checks the graph has the sizes that say how much.
    """

    graph: Graph
    entries: tuple[Entry, ...]
    inputs: tuple[tuple[str, FileTensor], ...]
    outputs: tuple[tuple[str, FileTensor], ...]
    bound: Mapping[TensorIndex, Tensor]
    open: frozenset[TensorIndex]
    checks: tuple[str, ...]
    calls: Mapping[int, Call]
    trims: tuple[Trim, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether one piece on the device is all of it."""
        return not self.obstacles and not self.calls

    @property
    def obstacles(self) -> tuple[str, ...]:
        """A sentence for each reason why an operator cannot run on the device."""
        return tuple(f"operator {e.index} {e.code}: {reason}" for e in self.entries for reason in e.reasons)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Why it is not one piece on the device."""
        calls = (e for e in self.entries if e.index in self.calls)
        return (
            *self.obstacles,
            *(f"operator {e.index} {e.code}: it is a piece of its own on the device" for e in calls),
        )

    @property
    def output_types(self) -> list[str]:
        """The element types of the graph's outputs, as the file has them."""
        sizes = len(self.graph.outputs) - len(self.outputs) - len(self.checks)
        return [*(tensor.dtype for _, tensor in self.outputs), *("bool" for _ in self.checks), *["int32"] * sizes]

    @property
    def output_shapes(self) -> list[Shape]:
        """Shapes of the file's outputs; the file's for an output whose shape only a run can tell."""
        trimmed = {trim.output for trim in self.trims}
        return [
            tensor.shape if number in trimmed else self.graph[self.graph.outputs[number]].shape
            for number, (_, tensor) in enumerate(self.outputs)
        ]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Obstacles that no CPU helps against: unknown custom operators."""
        custom = (e for e in self.entries if e.custom and e.reasons and e.code not in KNOWN_CUSTOM)
        return tuple(f"operator {e.index}: {reason}" for e in custom for reason in e.reasons)

    @property
    def nowhere(self) -> tuple[str, ...]:
        """Why operators can run neither on the device nor on the CPU."""
        return tuple(reason for e in self.entries for reason in e.cpu_reasons)

    @property
    def known(self) -> frozenset[TensorIndex]:
        """The tensors whose values are known before a run: constants, and what follows from them and from shapes."""
        return frozenset(index for index, tensor in self.bound.items() if tensor.is_constant)

    @property
    def capable(self) -> frozenset[int]:
        """The operators that can run on the device."""
        return frozenset(e.index for e in self.entries if not e.reasons)
