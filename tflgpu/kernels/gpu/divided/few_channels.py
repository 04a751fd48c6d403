"""Convolutions of few output channels as two nodes, in one of two ways, wherever that is faster.

A kernel computes at least a vec4 of output channels, on tensor cores 16. It would throw most away of one or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from operator import itemgetter

from tflgpu.graph.ir import TensorId
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.divided import pixels_as_channels, taps_as_channels
from tflgpu.kernels.gpu.divided.division import Division, divide_nodes
from tflgpu.kernels.gpu.divided.shared_sums import least_cycles
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution

FEW_OUTPUTS = 16


@dataclass(frozen=True)
class Way:
    """How a convolution may become two nodes.

    divided: gives these, and their cycles. gain: of the cycles of one kernel, what they may take by the cost model.
    longer: how many times as long as that says they take, by which ways are compared. Both numbers are by 60
    convolutions that were measured in each way on an H100, in both precisions: of 46 that are divided one takes 1.3 of
    the time of one kernel (by 5 us), the others 0.05 to 0.98.
    """

    divided: Callable[[Request, Iterator[TensorId]], tuple[Division, float] | None]
    gain: float
    longer: float


PIXELS = Way(pixels_as_channels.divided, gain=0.6, longer=2.0)
TAPS = Way(taps_as_channels.divided, gain=0.8, longer=1.0)


@GPU.rewrite("divide")
def divide_convolutions(planning: Planning) -> Planning:
    """With two nodes for a convolution wherever they are faster."""

    def divide(request: Request, fresh: Iterator[TensorId]) -> Division | None:
        found = fastest(request, fresh)
        return None if found is None else found[0]

    return divide_nodes(planning, divide)


def fastest(request: Request, fresh: Iterator[TensorId]) -> tuple[Division, float] | None:
    """The nodes that take the least time by the cost model, and their cycles; None if the node as it is takes less."""
    ways = _ways(request)
    whole = least_cycles(request) if ways else inf
    if whole == inf:
        return None
    found = [(way, way.divided(request, fresh)) for way in ways]
    faster = [(way.longer * two[1], two) for way, two in found if two and two[1] < way.gain * whole]
    return min(faster, key=itemgetter(0))[1] if faster else None


def _ways(request: Request) -> list[Way]:
    """How a convolution of known weights, transposed or not, might be divided."""
    node, attributes = request.node, request.node.attributes
    if node.kind not in ("convolution", "transpose_convolution") or 0 in node.epilogue_inputs:
        return []
    assert isinstance(attributes, Convolution | TransposeConvolution)
    if attributes.groups > 1 or request.value(1) is None or request.input(0).vector != "float":
        return []
    return [PIXELS, TAPS] if request.output.channels <= FEW_OUTPUTS else []
