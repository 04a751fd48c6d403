"""A pointwise convolution, or a layer of rows, of functions of an image, on tensor cores.

Each warp computes the functions of the vec4s that it loads, before it multiplies them. So normalizations and
activations that no kernel before can compute, as those of a growing concatenation, take no kernel of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Value
from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import access
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import GemmWork
from tflgpu.kernels.mma.gemm import packed_weights
from tflgpu.kernels.mma.gemm.packed_weights import WarpTile
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.operands import operands_of_image
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.ops.image.window import POINTWISE
from tflgpu.target import Target

MAPPED_POINTWISE = "mapped_pointwise"

# Inputs of the node ahead of the functions' own: image, weights, bias.
PRODUCT_INPUTS = 3


@dataclass(frozen=True)
class MappedPointwise:
    """A pointwise convolution of what ``functions`` make of an image, and which nothing else reads.

    Inputs: image, weights [out, .., in], bias, and then numbers for each channel, or for all, that the functions read.
    These count them as the inputs of a map: input 0 is the image.
    """

    functions: tuple[EpilogueOp, ...]
    constants: int


def mapped_candidates(src: Storage, dst: Storage, target: Target) -> list[Candidate[WarpTile, GemmWork]]:
    """Return the tiles of the product, the fastest first."""
    return packed_weights.candidates(operands_of_image(src, target.storage), POINTWISE, src, dst, target)


@MMA.lowering(MAPPED_POINTWISE)
def mapped_pointwise(request: Request) -> Kernel:
    """Return a pointwise convolution whose warps compute functions of what they load of the image."""
    attributes, src = request.attributes(MappedPointwise), request.input(0)
    chosen = request.choose_candidate(mapped_candidates(src, request.output, request.target))
    weights = request.constant(1).reshape(request.output.channels, 1, 1, -1)
    operands = operands_of_image(src, request.target.storage)
    kernel = packed_weights.kernel(request, operands.image, chosen, POINTWISE, [weights], request.constant(2))
    arguments = [_constant(request, i) for i in range(attributes.constants)]
    assert isinstance(kernel.parameters, packed_weights.DirectParameters)
    functions = tuple(_seen(request, op, k, arguments) for k, op in enumerate(attributes.functions))
    parameters = replace(kernel.parameters, functions=functions)
    return replace(kernel, parameters=parameters, arguments=(*kernel.arguments, *arguments))


def _constant(request: Request, number: int) -> Argument:
    """Numbers for all channels that a warp loads, those past the last one included."""
    channels = UNIT.side * UNIT.blocks(request.input(0).slices)
    value = np.broadcast_to(request.constant(PRODUCT_INPUTS + number).reshape(-1), (request.input(0).channels,))
    return Argument(f"mapped{number}", "float", None, padded_bias(value.astype(np.float32), channels))


def _seen(request: Request, op: EpilogueOp, position: int, arguments: list[Argument]) -> Mapping[str, object]:
    """Return an op as templates see it."""
    image = request.shape(0).shape

    def operand(index: int) -> Mapping[str, object]:
        argument = arguments[index - 1]
        return {"value": None, "access": access(argument.name, argument, image[-1:], image)}

    operands = [{"value": o.index} if isinstance(o, Value) else operand(o.index) for o in op.operands]
    return {
        "index": position + 1,
        "function": op.function,
        "operands": operands,
        "parameters": list(op.parameters),
        "type": "float",
        "wide": False,
    }


def mapping_cycles(candidate: Candidate[WarpTile, GemmWork], functions: int, target: Target) -> float:
    """About the cycles in which the warps of a compute unit compute the functions of what they load."""
    work, warps = candidate.work, target.local_size // UNIT.lanes
    instructions = 2 * work.row_blocks * LANES * (functions + 2)
    steps = -(-work.k_steps // work.split_k) * -(-work.tiles // target.compute_units)
    return steps * instructions * warps / LANES
