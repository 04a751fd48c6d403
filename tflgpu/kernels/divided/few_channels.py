"""Convolutions of few channels as two nodes, in one of several ways, wherever that is faster.

A kernel computes at least a vec4 of output channels, on matrix units 16, and reads at least a vec4 of input channels: it
would throw most away of one or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.kernels.divided import patches_as_channels, pixels_as_channels, taps_as_channels
from tflgpu.kernels.divided.division import Division
from tflgpu.kernels.divided.shared_sums import cycles_by_count
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution
from tflgpu.target import Target

FEW_OUTPUTS = 16
# Of the cycles of one kernel, what two may take by the cost model. On an H100 one of 38 convolutions, for which it says
# 0.8 and less, took longer as two (21 instead of 16 us), and all others 0.3 to 0.97 of the time.
GAIN = 0.8


def divide_convolutions(
    graph: Graph, storage: Mapping[TensorId, Storage], target: Target
) -> tuple[Graph, dict[TensorId, Storage]]:
    """The graph with two nodes for a convolution wherever they are faster, and the storage of its activations."""
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    fresh, known = graph.fresh_ids(), dict(storage)
    for node in graph.nodes:
        best = fastest(Request(node, graph, storage, target), fresh) if target.family == "gpu" else None
        if best is None:
            nodes.append(node)
            continue
        nodes += best.nodes
        tensors += best.tensors
        known |= best.storage
    return graph.with_nodes(nodes, tensors), known


def fastest(request: Request, fresh: Iterator[TensorId]) -> Division | None:
    """The nodes that take the least time by the cost model; None if the node as it is takes less."""
    ways = _ways(request)
    known = cycles_by_count(request) if ways else {}
    if not known:
        return None
    found = (way(request, fresh) for way in ways)
    best = min((division for division in found if division is not None), key=lambda d: d.cycles, default=None)
    return best if best is not None and best.cycles < GAIN * min(known.values()) else None


def _ways(request: Request) -> list[Callable[[Request, Iterator[TensorId]], Division | None]]:
    """How a convolution of known weights, transposed or not, might be divided."""
    node, attributes = request.node, request.node.attributes
    if node.kind not in ("convolution", "transpose_convolution") or 0 in node.epilogue_inputs:
        return []
    assert isinstance(attributes, Convolution | TransposeConvolution)
    if attributes.groups > 1 or request.value(1) is None or request.input(0).vector != "float":
        return []
    of_outputs = [pixels_as_channels.divided, taps_as_channels.divided]
    return [*(of_outputs if request.output.channels <= FEW_OUTPUTS else []), patches_as_channels.divided]
