"""A squeeze-and-excitation within the pointwise convolution behind it, on matrix units.

The kernel of the image writes what the hidden layer sums up, see :mod:`tflgpu.kernels.gpu.hidden_sums`. Each work-group
of the convolution adds that up, each of its warps computes the gates of its own k-steps, and multiplies the image by
them as it loads it. So an excitation takes no kernel at all. That pays for one image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Array, Graph, Node, Tensor, TensorId, joint_sources
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.convolutions import unrolls
from tflgpu.kernels.fusing import inner_epilogue, is_pointwise, joined_node, weights_and_bias
from tflgpu.kernels.gpu.excite_kernel import Excite, excite_cycles, excite_work, hidden_sharers
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma import MMA, implicit_gemm
from tflgpu.kernels.mma.convolution_kernels import convolution_candidates
from tflgpu.kernels.mma.costs import GemmWork, gating_cycles
from tflgpu.kernels.mma.diagonal_depthwise import diagonal_candidates
from tflgpu.kernels.mma.implicit_gemm import ImplicitGemmTile
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.operands import Operands
from tflgpu.kernels.mma.pointwise_depthwise import PointwiseDepthwise, pointwise_depthwise_candidates
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local, split_workspace, tile_count
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import POINTWISE
from tflgpu.target import Target

HALVES = Operands("half", "half")
EXCITED_POINTWISE = "excited_pointwise"
# Blocks of gates' weights that a warp loads before it waits for others. A block takes four registers of each lane.
EARLY_WEIGHTS = 27


@dataclass(frozen=True)
class ExcitedPointwise:
    """A pointwise convolution of what an ``excitation`` makes of an image, and which nothing else reads.

    Inputs: those of :class:`tflgpu.kernels.gpu.excite_kernel.Excite`, then weights [out, 1, 1, channels] and bias. For
    the kernel, sums of the hidden layer take the place of the vector.
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
            EXCITED_POINTWISE, ExcitedPointwise(excited.attributes), excited, node, inputs
        )
        dropped.add(excited.output)
    nodes = [joined.get(node.output, node) for node in graph.nodes if node.output not in dropped]
    return graph.with_nodes(nodes, zeros)


def _is_faster(graph: Graph, storage: Mapping[TensorId, Storage], excited: Node, node: Node, target: Target) -> bool:
    """Whether ``node`` is a convolution that one kernel computes faster together with the excitation that it reads.

    Then the mean takes no kernel either.
    """
    if not isinstance(excited.attributes, Excite) or excited.epilogue or not is_pointwise(node):
        return False
    if not graph[node.inputs[1]].is_constant or graph.sole_consumer(excited.output) is None:
        return False
    image, vector, between = (storage[t] for t in (*excited.inputs[:2], excited.output))
    result, model = storage[node.output], target.cost_model
    if {image.type, between.type} != {"half"} or image.batch > 1 or not _is_summed(graph, storage, excited):
        return False
    hidden = graph[excited.inputs[2]].shape[0]
    candidates = _candidates(image, result, hidden, target)
    if hidden > target.local_size or not candidates:
        return False
    mean = model.kernel(waves=1, phases=0)
    excitation = excite_cycles(excite_work(image, vector, hidden, target), target)
    apart = convolution_candidates(HALVES, POINTWISE, image, result, target)[0].cycles
    together = candidates[0].cycles + gating_cycles(image, hidden, target)
    return together < mean + excitation + 2 * model.next_kernel(target.executor) + apart


def _is_summed(graph: Graph, storage: Mapping[TensorId, Storage], excited: Node) -> bool:
    """Whether an excitation squeezes an image whose kernel can write the sums of its hidden layer beside it.

    That is so of depthwise convolutions of halves, alone and in one kernel with the pointwise one before.
    """
    image, squeezed = excited.inputs[:2]
    mean, depthwise = graph.producer.get(squeezed), graph.producer.get(image)
    return (
        mean is not None
        and mean.attributes == Reduce("mean", (1, 2))
        and mean.inputs == (image,)
        and not mean.epilogue
        and graph.sole_consumer(squeezed) is not None
        and depthwise is not None
        and unrolls(depthwise.attributes)
        and storage[depthwise.inputs[0]].type == "half"
        and graph[depthwise.inputs[1]].is_constant
    )


def sum_hidden_layers(
    graph: Graph, storage: Mapping[TensorId, Storage], target_of: Callable[[TensorId], Target]
) -> tuple[Graph, dict[TensorId, Storage]]:
    """The graph without the means of excitations within convolutions, and the storage of its activations.

    In place of a mean, the kernel of its image writes sums of the hidden layer beside the image. target_of: for the
    kernel of a tensor.
    """
    known, fresh, nodes, tensors = dict(storage), graph.fresh_ids(), dict[TensorId, Node](), list[Tensor]()
    sums: dict[TensorId, TensorId] = {}  # by the mean in whose place they come
    hidden = {node.inputs[1]: node.inputs[2] for node in graph.nodes if node.kind == EXCITED_POINTWISE}
    for node in graph.nodes:
        if node.output not in hidden:
            nodes[node.output] = replace(node, inputs=tuple(sums.get(t, t) for t in node.inputs))
            continue
        image = nodes[node.inputs[0]]
        tiles = _tiles_of(image, storage, target_of(image.output))
        tensors.append(Tensor(next(fresh), "", (1, 1, tiles, graph[hidden[node.output]].shape[0])))
        sums[node.output] = tensors[-1].id
        known[tensors[-1].id] = Storage(Geometry(tensors[-1].shape), "float")
        nodes[image.output] = replace(image, side_outputs=(tensors[-1].id,), sources=joint_sources(image, node))
    return graph.with_nodes(nodes.values(), tensors), known


def _tiles_of(node: Node, storage: Mapping[TensorId, Storage], target: Target) -> int:
    """The tiles that the kernel of a depthwise convolution has, with the pointwise one before or alone."""
    image, result = storage[node.inputs[0]], storage[node.output]
    match node.attributes:
        case PointwiseDepthwise(window):
            return pointwise_depthwise_candidates(window, image, result, target)[0].work.tiles
        case Depthwise(window):
            return diagonal_candidates(window, result, target)[0].work.tiles
    raise TypeError(f"{node.title} writes no sums beside its result")


def _candidates(src: Storage, dst: Storage, hidden: int, target: Target) -> list[Candidate[ImplicitGemmTile, GemmWork]]:
    """The tiles that local memory is large enough for, with the gates and the hidden layer, the fastest first."""
    found = implicit_gemm.candidates(HALVES, POINTWISE, src, dst, target)
    return [c for c in found if fits_local(target, _split_vec4s(c.tile, target) + _gating_vec4s(c, hidden, target))]


def _split_vec4s(tile: ImplicitGemmTile, target: Target) -> int:
    return split_workspace(target, tile.split_k, tile.accumulators)


def _gating_vec4s(chosen: Candidate[ImplicitGemmTile, GemmWork], hidden: int, target: Target) -> int:
    """float4 elements of local memory for the gates of every warp's k-steps, and for the hidden layer."""
    warps, k_steps = target.local_size // UNIT.lanes, tile_count(chosen.work.k_steps, chosen.tile.split_k)
    return 2 * warps * k_steps + 2 * tile_count(hidden, UNIT.side)


@MMA.lowering(EXCITED_POINTWISE)
def excited_pointwise(request: Request) -> Kernel:
    attributes, src, sums, target = request.node.attributes, request.input(0), request.input(1), request.target
    assert isinstance(attributes, ExcitedPointwise)
    chosen = request.choose_candidate(_candidates(src, request.output, sums.channels, target))
    kernel = implicit_gemm.implicit_gemm(request, "half", chosen, POINTWISE, [request.constant(6)], request.constant(7))
    hidden_blocks = UNIT.blocks(sums.slices)
    k_steps = tile_count(chosen.work.k_steps, chosen.tile.split_k)
    excitation = {
        "hidden_epilogue": inner_epilogue(attributes.excitation.hidden_epilogue),
        "gate_epilogue": inner_epilogue(attributes.excitation.gate_epilogue),
        "sums": sums,
        "sharers": min(UNIT.lanes, hidden_sharers(UNIT.side * hidden_blocks, target)),
        "hidden_blocks": hidden_blocks,
        "gates_at": kernel.workspace,
        "early": k_steps * hidden_blocks <= EARLY_WEIGHTS,
    }
    gate_weights = pack_gates(request.constant(4).reshape(src.channels, -1), UNIT.blocks(src.slices), hidden_blocks)
    arguments = (
        request.activation("hidden_sums", 1),
        Argument("hidden_bias", "float", None, padded_bias(request.constant(3), LANES * sums.slices)),
        Argument("gate_weights", "half", None, gate_weights),
        Argument("gate_bias", "float", None, padded_bias(request.constant(5), UNIT.side * UNIT.blocks(src.slices))),
    )
    return replace(
        kernel,
        parameters={**kernel.parameters, "excitation": excitation},
        arguments=(*kernel.arguments, *arguments),
        workspace=kernel.workspace + _gating_vec4s(chosen, sums.channels, target),
        macs=kernel.macs + sums.channels * src.channels,
    )


def pack_gates(weights: Array, blocks: int, hidden_blocks: int) -> Array:
    """[channel, hidden channel] -> [block of 16 channels][block of 16 hidden channels][lane][8].

    As the left side of products: lane 4g + t holds channels 2g and 2g + 1 of a block, in rows g and g + 8, of hidden
    channels 4t to 4t + 3: first of the first two.
    """
    padded = np.zeros((blocks * UNIT.side, hidden_blocks * UNIT.side), np.float32)
    padded[: weights.shape[0], : weights.shape[1]] = weights
    # channel = 16 block + 2 g + row; hidden channel = 16 block + 4 t + 2 half + element
    axes = padded.reshape(blocks, 8, 2, hidden_blocks, 4, 2, 2)
    return np.ascontiguousarray(axes.transpose(0, 3, 1, 4, 5, 2, 6))
