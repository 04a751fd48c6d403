"""Convolutions of few output channels as two nodes, in one of two ways, wherever that is faster.

A kernel computes at least a vec4 of output channels, on tensor cores 16. It would throw most away of one or two.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import itemgetter

from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.divided import kn2row, width_blocking
from tflgpu.kernels.gpu.divided.division import Division, divide_nodes
from tflgpu.kernels.gpu.divided.shared_sums import least_cycles
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution
from tflgpu.target.corrections import corrected

FEW_OUTPUTS = 16


Divide = Callable[[Request, NewTensors], tuple[Division, float] | None]

# Ways to make two nodes of a convolution, by their names in the table of corrections.
WAYS: dict[str, Divide] = {"width blocking": width_blocking.divided, "kn2row": kn2row.divided}


@GPU.rewrite("divide")
def divide_convolutions(planning: Planning) -> Planning:
    """Put two nodes for a convolution wherever they take less time by the cost model."""
    return divide_nodes(planning, _fastest)


def _fastest(request: Request, new: NewTensors) -> Division | None:
    """Return the nodes that take the least time; None if the node as it is takes less."""
    if not _is_dividable(request):
        return None
    whole = least_cycles(request)
    if whole == inf:
        return None
    found = [(name, divided(request, new)) for name, divided in WAYS.items()]
    cycles = [(corrected(name, two[1], whole), two[0]) for name, two in found if two]
    least, best = min(cycles, key=itemgetter(0), default=(inf, None))
    return best if least < whole else None


def _is_dividable(request: Request) -> bool:
    """Whether a node is a convolution of known weights, transposed or not, to few channels."""
    node, attributes = request.node, request.node.attributes
    if node.kind not in ("convolution", "transpose_convolution") or 0 in node.epilogue_inputs:
        return False
    assert isinstance(attributes, Convolution | TransposeConvolution)
    if attributes.groups > 1 or not request.is_constant(1) or request.input(0).vector != "float":
        return False
    return request.output.channels <= FEW_OUTPUTS
