"""Attention on tensor cores in two kernels, where one would leave compute units idle."""

from __future__ import annotations

from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.attention import Attention
from tflgpu.kernels.gpu.shared_sums import Division, divide_nodes, in_parts
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.attention_kernel import candidates, suits
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning


@MMA.rewrite("divide")
def divide_attention(planning: Planning) -> Planning:
    """Put two nodes for an attention wherever they take less time by the cost model."""
    return divide_nodes(planning, _divided)


def _divided(request: Request, new: NewTensors) -> Division | None:
    attention, target = request.node.attributes, request.target
    if not isinstance(attention, Attention) or not suits(request):
        return None

    def least_cycles(divided: Attention) -> float | None:
        return next((candidate.cycles for candidate in candidates(divided, target)), None)

    return in_parts(request, attention, least_cycles, new)
