"""A squeeze-and-excitation within the pointwise convolution behind it, on matrix units.

Each work-group computes the two layers of the excitation, and multiplies the image by the gates as it loads it. So a
block takes a kernel less. That pays for one image and layers of few weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.fusing import inner_epilogue, is_pointwise, joined_node, weights_and_bias
from tflgpu.kernels.gpu.excite_kernel import Excite, excitation_arguments, excite_cycles, excite_work, hidden_sharers
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.mma import MMA, implicit_gemm
from tflgpu.kernels.mma.convolution_kernels import convolution_candidates
from tflgpu.kernels.mma.costs import GemmWork, gating_cycles
from tflgpu.kernels.mma.implicit_gemm import ImplicitGemmTile
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.operands import Operands
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local, tile_count
from tflgpu.ops.image.window import POINTWISE
from tflgpu.target import Target

HALVES = Operands("half", "half")
GATE_BYTES = 8  # of a slice, in local memory
# Weights that a work-item of the hidden layer keeps in registers until its inputs are there.
HELD_WEIGHTS = 24


@dataclass(frozen=True)
class ExcitedPointwise:
    """A pointwise convolution of what an ``excitation`` makes of an image, and which nothing else reads.

    Inputs: those of :class:`tflgpu.kernels.gpu.excite_kernel.Excite`, then weights [out, 1, 1, channels] and bias.
    """

    excitation: Excite


@MMA.fusion
def fuse_excited_pointwise(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each excitation and the pointwise convolution behind it that run faster so."""
    fresh = graph.fresh_ids()
    zeros: list[Tensor] = []
    joined: dict[TensorId, Node] = {}  # by what the convolution writes
    dropped = set()
    for node in graph.nodes:
        excited = graph.producer.get(node.inputs[0]) if node.inputs else None
        if excited is None or not _is_faster(graph, storage, excited, node, target):
            continue
        assert isinstance(excited.attributes, Excite)
        inputs = (*excited.inputs, *weights_and_bias(graph, node, fresh, zeros))
        joined[node.output] = joined_node(
            "excited_pointwise", ExcitedPointwise(excited.attributes), excited, node, inputs
        )
        dropped.add(excited.output)
    nodes = [joined.get(node.output, node) for node in graph.nodes if node.output not in dropped]
    return graph.with_nodes(nodes, zeros)


def _is_faster(graph: Graph, storage: Mapping[TensorId, Storage], excited: Node, node: Node, target: Target) -> bool:
    """Whether ``node`` is a convolution that one kernel computes faster together with the excitation that it reads."""
    if not isinstance(excited.attributes, Excite) or excited.epilogue or not is_pointwise(node):
        return False
    if not graph[node.inputs[1]].is_constant or graph.sole_consumer(excited.output) is None:
        return False
    image, vector, between = (storage[t] for t in (*excited.inputs[:2], excited.output))
    result = storage[node.output]
    if {image.type, between.type} != {"half"} or image.batch > 1:
        return False
    hidden = graph[excited.inputs[2]].shape[0]
    if not _fits(image, vector, hidden, target):
        return False
    excitation = excite_cycles(excite_work(image, vector, hidden, target), target)
    apart = convolution_candidates(HALVES, POINTWISE, image, result, target)[0].cycles
    together = _candidates(image, result, target)[0].cycles + gating_cycles(image, vector, hidden, target)
    return together < excitation + target.cost_model.next_kernel(target.executor) + apart


def _fits(image: Storage, vector: Storage, hidden: int, target: Target) -> bool:
    """Whether a work-group has a work-item for each sharer of the hidden layer, and room for its share of weights."""
    if hidden > target.local_size:
        return False
    held = tile_count(LANES * vector.slices, hidden_sharers(hidden, target))
    return held <= HELD_WEIGHTS and fits_local(target, target.local_size + _excitation_vec4s(image, hidden))


def _excitation_vec4s(image: Storage, hidden: int) -> int:
    """float4 elements of local memory for the gates and the hidden layer."""
    return 2 * UNIT.blocks(image.slices) + tile_count(hidden, LANES)


def _candidates(src: Storage, dst: Storage, target: Target) -> list[Candidate[ImplicitGemmTile, GemmWork]]:
    return implicit_gemm.candidates(HALVES, POINTWISE, src, dst, target)


@MMA.lowering("excited_pointwise")
def excited_pointwise(request: Request) -> Kernel:
    attributes, src, squeezed, target = request.node.attributes, request.input(0), request.input(1), request.target
    assert isinstance(attributes, ExcitedPointwise)
    chosen = request.choose_candidate(_candidates(src, request.output, target))
    kernel = implicit_gemm.implicit_gemm(request, "half", chosen, POINTWISE, [request.constant(6)], request.constant(7))
    hidden = len(request.constant(2))
    squeezed_vector, hidden_weights, hidden_bias, gate_weights, gate_bias = excitation_arguments(request, src.slices)
    assert gate_weights.data is not None
    # Neighbouring work-items compute neighbouring slices.
    by_hidden = gate_weights.data.reshape(src.slices, -1, LANES).transpose(1, 0, 2)
    gate_weights = replace(gate_weights, data=np.ascontiguousarray(by_hidden))
    gates_at = max(kernel.workspace, target.local_size)
    excitation = {
        "hidden_epilogue": inner_epilogue(attributes.excitation.hidden_epilogue),
        "gate_epilogue": inner_epilogue(attributes.excitation.gate_epilogue),
        "hidden_slices": tile_count(hidden, LANES),
        "hidden_channels": hidden,
        "sharers": hidden_sharers(hidden, target),
        "squeezed": squeezed,
        "gates_at": gates_at,
    }
    return replace(
        kernel,
        parameters={**kernel.parameters, "excitation": excitation},
        arguments=(*kernel.arguments, squeezed_vector, hidden_weights, hidden_bias, gate_weights, gate_bias),
        workspace=gates_at + _excitation_vec4s(src, hidden),
        macs=kernel.macs + 2 * hidden * src.channels,
    )
