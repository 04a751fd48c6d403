"""Pointwise convolutions on tensor cores of functions of an image, and of images within a squeeze-and-excitation.

Of an image's functions, each warp computes those of the vec4s that it loads, before it multiplies them. So
normalizations and activations that no kernel before can compute, as those of a growing concatenation, take no kernel of
their own.

Of an excitation, the kernel of the image writes what the hidden layer sums up, see
:mod:`tflgpu.kernels.gpu.excite_kernel`. Each work-group of the convolution adds that up, each of its warps computes the
gates of its own k-steps, and multiplies the image by them as it loads it. So an excitation takes no kernel at all. That
pays for one image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Value
from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import access
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.gpu.excite_kernel import Excite, ReadsSums, hidden_sharers
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import GemmWork
from tflgpu.kernels.mma.gemm import packed_weights
from tflgpu.kernels.mma.gemm.packed_weights import WarpTile
from tflgpu.kernels.mma.gemm.skeletons import Excitation, SqueezedMean
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands, operands_of_image
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local, power_of_two, split_workspace, tile_count
from tflgpu.ops.image.window import POINTWISE
from tflgpu.target import HALF_WHOLE, Target

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


HALVES = Operands("half", "half")
EXCITED_POINTWISE = "excited_pointwise"
# Blocks of gates' weights that a warp loads before it waits for others. A block takes four registers of each lane.
EARLY_WEIGHTS = 27
EARLY_HIDDEN_WEIGHTS = 20  # pairs of slices of the hidden layer's weights, of four registers each
ROUNDED_HALVES = HALF_WHOLE // 4  # below which a half plus 1.5 * 2^10 is a whole number
FULL_HALVES = 2.0**-14, 65504.0  # between which half precision has all of its digits


@dataclass(frozen=True)
class ExcitedPointwise(ReadsSums):
    """A pointwise convolution of what an ``excitation`` makes of an image, and which nothing else reads.

    Inputs: those of :class:`tflgpu.kernels.gpu.excite_kernel.Excite`, then weights [out, 1, 1, channels] and bias. For
    the kernel, sums of the hidden layer take the place of the vector, or those of the image if the mean is rounded.

    product_epilogue: ops on the image times its gates, which read no inputs.
    """

    excitation: Excite
    product_epilogue: tuple[EpilogueOp, ...] = ()


def excited_candidates(
    src: Storage, dst: Storage, hidden: int, target: Target, *, means: bool = False
) -> list[Candidate[WarpTile, GemmWork]]:
    """Return the tiles that local memory is large enough for, with the gates and the hidden layer, the fastest first.

    There are none of an image of one slice, whose products take several taps as channels. means: whether local memory
    holds the means of all channels as well.
    """
    if src.slices == 1:
        return []
    room = src.slices if means else 0
    found = packed_weights.candidates(HALVES, POINTWISE, src, dst, target)
    return [
        c for c in found if fits_local(target, _split_vec4s(c.tile, target) + _gating_vec4s(c, hidden, target) + room)
    ]


def _split_vec4s(tile: WarpTile, target: Target) -> int:
    return split_workspace(target, tile.split_k, tile.accumulators)


def _gating_vec4s(chosen: Candidate[WarpTile, GemmWork], hidden: int, target: Target) -> int:
    """float4 elements of local memory for the gates of every warp's k-steps, and for the hidden layer."""
    warps, k_steps = target.local_size // UNIT.lanes, tile_count(chosen.work.k_steps, chosen.tile.split_k)
    return 2 * warps * k_steps + 2 * tile_count(hidden, UNIT.side)


@dataclass(frozen=True)
class _Layers:
    """The two layers as a kernel multiplies them, [out, in], and the ops after each of their products.

    product_limits, product_step: if the image times its gates is rounded in half precision, between which whole
    numbers, and what one of them stands for.
    """

    hidden_weights: Array
    hidden_scale: Array
    hidden_epilogue: tuple[EpilogueOp, ...]
    gate_weights: Array
    gate_scale: Array
    gate_epilogue: tuple[EpilogueOp, ...]
    product_epilogue: tuple[EpilogueOp, ...]
    product_limits: tuple[int, int] | None = None
    product_step: float = 1.0


def _layers(request: Request, attributes: ExcitedPointwise) -> _Layers:
    """Return the layers of a node. Of a mean that is rounded, they multiply whole numbers, and their sums by the
    scales."""
    excitation, product = attributes.excitation, attributes.product_epilogue
    hidden, gates = (request.constant(index).reshape(len(request.constant(index)), -1) for index in (2, 4))
    if not attributes.mean_epilogue:
        hidden_scale, gate_scale = (np.ones(len(weights), np.float32) for weights in (hidden, gates))
        return _Layers(
            hidden, hidden_scale, excitation.hidden_epilogue, gates, gate_scale, excitation.gate_epilogue, product
        )
    hidden, hidden_scale = _whole_rows(request, 2)
    gates, gate_scale = _whole_rows(request, 4)
    hidden_epilogue, hidden_step = _whole_results(excitation.hidden_epilogue)
    gate_scale = gate_scale * np.float32(hidden_step)
    layers = _Layers(hidden, hidden_scale, hidden_epilogue, gates, gate_scale, excitation.gate_epilogue, product)
    return _with_whole_products(layers, request.constant(6)) or _with_whole_gates(layers)


@MMA.lowering(EXCITED_POINTWISE)
def excited_pointwise(request: Request) -> Kernel:
    """Return a pointwise convolution of an image that is multiplied by gates, which each work-group computes first."""
    attributes, target = request.attributes(ExcitedPointwise), request.target
    src, sums = request.input(0), request.input(1)
    layers, means = _layers(request, attributes), attributes.sums_channels
    hidden, blocks = len(layers.hidden_weights), UNIT.blocks(src.slices)
    chosen = request.choose_candidate(excited_candidates(src, request.output, hidden, target, means=means))
    weights = request.constant(6) * np.float32(layers.product_step)
    kernel = packed_weights.kernel(request, "half", chosen, POINTWISE, [weights], request.constant(7))
    assert isinstance(kernel.parameters, packed_weights.DirectParameters)
    hidden_blocks, scaled = tile_count(hidden, UNIT.side), bool(attributes.mean_epilogue)
    padded_hidden, padded_channels = UNIT.side * hidden_blocks, UNIT.side * blocks
    k_steps = tile_count(chosen.work.k_steps, chosen.tile.split_k)
    gating_end = kernel.workspace + _gating_vec4s(chosen, hidden, target)
    mean = _squeezed_mean(attributes, src, sums, hidden_blocks, gating_end, target) if means else None
    excitation = Excitation(
        hidden_epilogue=inner_epilogue(layers.hidden_epilogue),
        gate_epilogue=inner_epilogue(layers.gate_epilogue),
        sums=sums,
        sharers=min(UNIT.lanes, hidden_sharers(padded_hidden, target)),
        hidden_blocks=hidden_blocks,
        gates_at=kernel.workspace,
        early=k_steps * hidden_blocks <= EARLY_WEIGHTS,
        mean=mean,
        scaled=scaled,
        product_epilogue=inner_epilogue(layers.product_epilogue),
        product_limits=layers.product_limits,
    )
    arguments = [
        request.activation("hidden_sums", 1),
        Argument("hidden_bias", "float", None, padded_bias(request.constant(3), padded_hidden)),
        Argument("gate_weights", "half", None, pack_gates(layers.gate_weights, blocks, hidden_blocks)),
        Argument("gate_bias", "float", None, padded_bias(request.constant(5), padded_channels)),
    ]
    if scaled:
        arguments.append(Argument("gate_scale", "float", None, padded_bias(layers.gate_scale, padded_channels)))
    if mean is not None:
        packed = pack_hidden(layers.hidden_weights, sums.slices, mean.channel_sharers, target.local_size)
        arguments.append(Argument("hidden_weights", "half", None, packed))
        arguments.append(Argument("hidden_scale", "float", None, padded_bias(layers.hidden_scale, padded_hidden)))
    return replace(
        kernel,
        parameters=replace(kernel.parameters, excitation=excitation),
        arguments=(*kernel.arguments, *arguments),
        workspace=gating_end + (sums.slices if means else 0),
        macs=kernel.macs + (2 if means else 1) * hidden * src.channels,
    )


def _squeezed_mean(
    attributes: ExcitedPointwise, src: Storage, sums: Storage, hidden_blocks: int, at: int, target: Target
) -> SqueezedMean:
    """Return what the kernel knows of a mean that it computes from sums of the image's channels."""
    channel_sharers = min(UNIT.lanes, power_of_two(target.local_size // (hidden_blocks * UNIT.side)))
    part_sharers = min(UNIT.lanes, power_of_two(max(1, target.local_size // sums.slices)))
    return SqueezedMean(
        epilogue=inner_epilogue(attributes.mean_epilogue),
        factor=1 / src.plane,
        part_sharers=part_sharers if part_sharers >= LANES else 1,
        channel_sharers=channel_sharers,
        at=at,
        early=min(tile_count(sums.slices, 2 * channel_sharers), EARLY_HIDDEN_WEIGHTS),
    )


def _whole_rows(request: Request, index: int) -> tuple[Array, Array]:
    """Weights [out, in] and a factor for each row: of quantized ones the whole numbers and their scales."""
    tensor = request.graph[request.node.inputs[index]]
    weights = request.constant(index)
    weights = weights.reshape(len(weights), -1)
    ones = np.ones(len(weights), np.float32)
    if tensor.scale is None or tensor.scale.size not in (1, len(weights)):
        return weights, ones
    scale = np.broadcast_to(tensor.scale.reshape(-1), ones.shape).astype(np.float32)
    with np.errstate(all="ignore"):  # scales may be anything
        whole = np.rint(weights / scale[:, np.newaxis])
    is_whole = np.isfinite(whole).all() and np.abs(whole).max(initial=0) <= HALF_WHOLE
    return (whole.astype(np.float32), scale) if is_whole else (weights, ones)


def _steps(epilogue: tuple[EpilogueOp, ...]) -> tuple[float, float, float, float] | None:
    """Return the grid that an epilogue ends with, if half precision holds the numbers of its steps."""
    last = epilogue[-1] if epilogue else None
    if (
        last is None
        or last.function != "fake_quantize"
        or len(last.parameters) != len(("scale", "zero", "low", "high"))
    ):
        return None
    scale, zero, low, high = last.parameters
    return (scale, zero, low, high) if max(abs(low - zero), abs(high - zero)) <= HALF_WHOLE else None


def _whole_results(epilogue: tuple[EpilogueOp, ...]) -> tuple[tuple[EpilogueOp, ...], float]:
    """Return an epilogue that gives the numbers of steps in place of multiples of the step, and the step; else 1."""
    grid = _steps(epilogue)
    if grid is None:
        return epilogue, 1.0
    scale, *others = grid
    return (*epilogue[:-1], replace(epilogue[-1], parameters=(1.0, *others, scale))), scale


def _with_whole_products(layers: _Layers, weights: Array) -> _Layers | None:
    """Round products of the image and its gates in half precision; None if that cannot be.

    Gates are divided by the step of products before they become halves, and products are numbers of steps: the
    ``weights`` that multiply them take the step in. Gates that are exact in half after that are none of these: their
    products may be halves of a step, which are rounded away from zero in float.
    """
    grid, gate_grid = _steps(layers.product_epilogue), _steps(layers.gate_epilogue)
    if grid is None or gate_grid is None or len(layers.product_epilogue) > 1:
        return None
    (step, zero, *ends), (gate_step, gate_zero, *gate_ends) = grid, gate_grid
    limits, gate = [int(end - zero) for end in ends], gate_step / step
    largest_gate = gate * max(abs(end - gate_zero) for end in gate_ends)
    largest_weight = step * float(np.abs(weights).max(initial=0))
    smallest, largest = FULL_HALVES
    in_range = smallest <= gate <= largest_gate <= largest and smallest <= largest_weight <= largest
    if not in_range or float(np.float16(gate)) == gate or max(map(abs, limits)) >= ROUNDED_HALVES:
        return None
    *before, rounding = layers.gate_epilogue
    divided = replace(rounding, parameters=(gate, gate_zero, *gate_ends, gate_step))
    low, high = limits
    return replace(
        layers, gate_epilogue=(*before, divided), product_epilogue=(), product_limits=(low, high), product_step=step
    )


def _with_whole_gates(layers: _Layers) -> _Layers:
    """Let gates be numbers of steps, and divide products of the image by them as they are rounded."""
    gates, step = _whole_results(layers.gate_epilogue)
    product, grid = layers.product_epilogue, _steps(layers.product_epilogue)
    if gates is layers.gate_epilogue or grid is None or len(product) > 1:
        return layers
    divisor = np.float32(grid[0] / step)
    if not np.finfo(np.float32).tiny <= divisor < np.inf:
        return layers
    rounding = replace(product[0], parameters=(*grid, float(divisor)))
    return replace(layers, gate_epilogue=gates, product_epilogue=(rounding,))


def pack_hidden(weights: Array, slices: int, sharers: int, size: int) -> Array:
    """[hidden channel, channel] -> [pair of slices of a work-item][work-item][2 slices][4 channels].

    Work-item ``hidden channel * sharers + n`` has every ``sharers``-th slice from the n-th one on.
    """
    pairs = tile_count(slices, 2 * sharers)
    padded = np.zeros((size // sharers, pairs * 2 * sharers * LANES), np.float32)
    padded[: len(weights), : weights.shape[1]] = weights
    axes = padded.reshape(size // sharers, pairs, 2, sharers, LANES)
    return np.ascontiguousarray(axes.transpose(1, 0, 3, 2, 4))


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
