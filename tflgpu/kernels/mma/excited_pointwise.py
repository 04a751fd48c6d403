"""A squeeze-and-excitation within the pointwise convolution after it, on tensor cores.

The kernel of the image writes what the hidden layer sums up, see :mod:`tflgpu.kernels.gpu.hidden_sums`. Each work-group
of the convolution adds that up, each of its warps computes the gates of its own k-steps, and multiplies the image by
them as it loads it. So an excitation takes no kernel at all. That pays for one image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.gpu.excite_kernel import Excite, hidden_sharers
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import GemmWork
from tflgpu.kernels.mma.excitation import Excitation
from tflgpu.kernels.mma.gemm import packed_weights
from tflgpu.kernels.mma.gemm.packed_weights import WarpTile
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.operands import Operands
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local, split_workspace, tile_count
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


def excited_candidates(src: Storage, dst: Storage, hidden: int, target: Target) -> list[Candidate[WarpTile, GemmWork]]:
    """The tiles that local memory is large enough for, with the gates and the hidden layer, the fastest first.

    There are none of an image of one slice, whose products take several taps as channels.
    """
    if src.slices == 1:
        return []
    found = packed_weights.candidates(HALVES, POINTWISE, src, dst, target)
    return [c for c in found if fits_local(target, _split_vec4s(c.tile, target) + _gating_vec4s(c, hidden, target))]


def _split_vec4s(tile: WarpTile, target: Target) -> int:
    return split_workspace(target, tile.split_k, tile.accumulators)


def _gating_vec4s(chosen: Candidate[WarpTile, GemmWork], hidden: int, target: Target) -> int:
    """float4 elements of local memory for the gates of every warp's k-steps, and for the hidden layer."""
    warps, k_steps = target.local_size // UNIT.lanes, tile_count(chosen.work.k_steps, chosen.tile.split_k)
    return 2 * warps * k_steps + 2 * tile_count(hidden, UNIT.side)


@MMA.lowering(EXCITED_POINTWISE)
def excited_pointwise(request: Request) -> Kernel:
    """A pointwise convolution of an image that is multiplied by gates, which each work-group computes first."""
    attributes, src, sums, target = request.node.attributes, request.input(0), request.input(1), request.target
    assert isinstance(attributes, ExcitedPointwise)
    chosen = request.choose_candidate(excited_candidates(src, request.output, sums.channels, target))
    kernel = packed_weights.kernel(request, "half", chosen, POINTWISE, [request.constant(6)], request.constant(7))
    hidden_blocks = UNIT.blocks(sums.slices)
    k_steps = tile_count(chosen.work.k_steps, chosen.tile.split_k)
    excitation = Excitation(
        hidden_epilogue=inner_epilogue(attributes.excitation.hidden_epilogue),
        gate_epilogue=inner_epilogue(attributes.excitation.gate_epilogue),
        sums=sums,
        sharers=min(UNIT.lanes, hidden_sharers(UNIT.side * hidden_blocks, target)),
        hidden_blocks=hidden_blocks,
        gates_at=kernel.workspace,
        early=k_steps * hidden_blocks <= EARLY_WEIGHTS,
    )
    assert isinstance(kernel.parameters, packed_weights.DirectParameters)
    gate_weights = pack_gates(request.constant(4).reshape(src.channels, -1), UNIT.blocks(src.slices), hidden_blocks)
    arguments = (
        request.activation("hidden_sums", 1),
        Argument("hidden_bias", "float", None, padded_bias(request.constant(3), LANES * sums.slices)),
        Argument("gate_weights", "half", None, gate_weights),
        Argument("gate_bias", "float", None, padded_bias(request.constant(5), UNIT.side * UNIT.blocks(src.slices))),
    )
    return replace(
        kernel,
        parameters=replace(kernel.parameters, excitation=excitation),
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
