"""Convolutions as implicit GEMM on tensor cores: rows are output pixels of all images, columns are output channels.

Operands come from the caches; each warp computes a tile of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import Phases, phases_of
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma.costs import GemmWork
from tflgpu.kernels.mma.gemm.skeletons import Excitation, RegistersParameters
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands, OperandType, type_of_constant
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, can_split, even_part, split_workspace, tile_count, waves
from tflgpu.ops.image.window import Window
from tflgpu.target import Target
from tflgpu.target.kernel_numbers import kernel_numbers

# Rows and columns of a warp tile, in blocks. Larger ones spill registers.
WARP_TILES = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2))


@dataclass(frozen=True, kw_only=True)
class LoopNumbers:
    """Numbers of loops over k-steps whose operands come from memory.

    Attributes:
        long_loop: K-steps of a warp, beyond which the few warps of a compute unit do not hide each other's waits.
        batch_registers: Registers of a lane for operands on their way from memory, in batches of k-steps.
        double_buffer_registers: The same with double buffering.
        float_registers: The same of floats, with the registers of sums: the parts that a float is split into take
            registers, too.
        few_waves: Waves up to which batches are faster: the first loads take the time, and so does loading the code,
            which double buffering makes twice as long.
    """

    long_loop: int
    batch_registers: int
    double_buffer_registers: int
    float_registers: int
    few_waves: int


LOOPS = kernel_numbers("mma/gemm/registers", LoopNumbers)


@dataclass(frozen=True)
class WarpTile(Tile):
    """Tile of one warp, in blocks, and how many warps share its k-steps."""

    row_blocks: int
    column_blocks: int
    split_k: int

    @property
    def accumulators(self) -> int:
        """vec4s of a lane."""
        return 2 * self.row_blocks * self.column_blocks


def candidates(
    operands: Operands, window: Window, src: Storage, dst: Storage, target: Target, phases: int = 1, shares: int = 1
) -> list[Candidate[WarpTile, GemmWork]]:
    """Return the tiles of a convolution of ``src`` that gives ``dst``, or shares of it, the fastest first.

    Of a transposed convolution, ``window`` and ``dst`` are those of one of its ``phases``.
    """
    k_steps = tile_count(k_steps_of(window, src), shares)
    return ranked(
        warp_tiles(target, k_steps),
        lambda tile: _work(tile, operands, window, src, dst, target, phases, shares),
        target,
    )


def warp_tiles(target: Target, k_steps: int) -> Iterator[WarpTile]:
    """Yield the tiles in which no warp goes through many k-steps that others could share."""
    for row_blocks, column_blocks in WARP_TILES:
        tiles = (WarpTile(row_blocks, column_blocks, split_k) for split_k in SPLIT_K)
        able = [tile for tile in tiles if can_split(target, tile.split_k, tile.accumulators)]
        yield from (tile for tile in able if tile == able[-1] or tile_count(k_steps, tile.split_k) <= LOOPS.long_loop)


def _work(
    tile: WarpTile,
    operands: Operands,
    window: Window,
    src: Storage,
    dst: Storage,
    target: Target,
    phases: int,
    shares: int,
) -> GemmWork:
    warps = target.local_size // UNIT.lanes
    row_blocks = tile_count(dst.geometry.pixels, UNIT.side)
    column_blocks = UNIT.blocks(dst.slices)
    row_tiles = tile_count(row_blocks, tile.row_blocks * (warps // tile.split_k))
    return GemmWork(
        operands=operands,
        tiles=shares * row_tiles * phases * tile_count(column_blocks, tile.column_blocks),
        k_steps=tile_count(k_steps_of(window, src), shares),
        row_blocks=tile.row_blocks,
        column_blocks=tile.column_blocks,
        split_k=tile.split_k,
    )


def k_steps_of(window: Window, src: Storage) -> int:
    """K-steps of a convolution: blocks of 16 channels of one tap, or four taps of an image of one slice."""
    taps = prod(window.kernel)
    if src.slices == 1:
        return UNIT.blocks(taps)
    return taps * UNIT.blocks(src.slices)


def prefetch_depth(
    operands: Operands, k_steps: int, row_blocks: int, column_blocks: int, *, double_buffered: bool = False
) -> int:
    """How many of a warp's k-steps are loaded at once: what registers allow, in equal batches."""
    registers = LOOPS.double_buffer_registers if double_buffered else LOOPS.batch_registers
    if not operands.are_halves:
        sums = LANES * 2 * row_blocks * column_blocks
        registers = min(registers, LOOPS.float_registers - sums)
    return even_part(k_steps, registers // operands.registers(row_blocks, column_blocks))


def taps_as_channels(weights: Array) -> Array:
    """[out, kh, kw, in], of at most 4 inputs -> [out, 1, 1, 4 * taps]: a window as one pixel of many channels."""
    out, kh, kw, depth = weights.shape
    padded = np.zeros((out, kh * kw, LANES), np.float32)
    padded[..., :depth] = weights.reshape(out, kh * kw, depth)
    return padded.reshape(out, 1, 1, -1)


@dataclass(frozen=True, kw_only=True)
class PackedWeightsParameters(RegistersParameters):
    """Parameters of ``templates/mma/gemm/packed_weights.cl.j2``, which those of its loaders extend."""

    shares: int
    window: Window
    phases: Phases | None
    src: Storage


@dataclass(frozen=True, kw_only=True)
class DirectParameters(PackedWeightsParameters, template="mma/gemm/direct", stores_once=True):
    """Parameters of ``templates/mma/gemm/direct.cl.j2``."""

    input_blocks: Size
    excitation: Excitation | None = None
    functions: Sequence[Mapping[str, object]] = ()


@dataclass(frozen=True, kw_only=True)
class FewChannelsParameters(PackedWeightsParameters, template="mma/gemm/few_channels", stores_once=True):
    """Parameters of ``templates/mma/gemm/few_channels.cl.j2``."""


def kernel(
    request: Request,
    image: OperandType,
    chosen: Candidate[WarpTile, GemmWork],
    window: Window,
    weights: Sequence[Array],
    bias: Array | None,
) -> Kernel:
    """Return the kernel of a convolution, or of shares of it.

    image: as products take it. weights: [out, kh, kw, in]; of a transposed convolution, those of each phase.
    """
    src, dst, target, tile = request.input(0), request.output, request.target, chosen.tile
    phases = phases_of(request)
    positions, taps = (src.pixels, phases.window.kernel) if phases else (dst.pixels, window.kernel)
    k_steps_per_split = tile_count(chosen.work.k_steps, tile.split_k)
    if src.slices == 1:
        made: Callable[..., PackedWeightsParameters] = FewChannelsParameters
        input_blocks = k_steps_of(window, src)
        weights = [taps_as_channels(own) for own in weights]
    else:
        input_blocks = UNIT.blocks(src.slices)
        made = partial(DirectParameters, input_blocks=input_blocks)
    packed = np.concatenate([UNIT.pack_right(own, tile.column_blocks, input_blocks) for own in weights])
    operands = Operands(image, type_of_constant(request, packed))
    double_buffered = waves(chosen.work.tiles, target) > LOOPS.few_waves
    blocks = tile.row_blocks, tile.column_blocks
    depth = prefetch_depth(operands, k_steps_per_split, *blocks, double_buffered=double_buffered)
    return Kernel(
        made(
            operands=operands,
            window=window,
            **asdict(tile),
            shares=request.shares,
            k_steps_per_split=k_steps_per_split,
            prefetch_depth=depth,
            double_buffered=double_buffered,
            column_tiles=tile_count(UNIT.blocks(dst.slices), tile.column_blocks),
            phases=phases,
            src=src,
        ),
        (
            request.activation("src", 0),
            Argument("weights", operands.weights, None, packed),
            Argument("bias", "float", None, padded_bias(bias, len(packed) // len(weights) * UNIT.side)),
        ),
        tiles=chosen.work.tiles // request.shares,
        local_size=target.local_size,
        workspace=split_workspace(target, tile.split_k, tile.accumulators),
        macs=positions * prod(taps) * dst.channels * src.channels,
    )
