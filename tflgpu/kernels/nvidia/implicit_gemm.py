"""Convolutions in half precision on matrix units."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.packing import SIDE, pack_fragments, padded_bias, taps_as_channels
from tflgpu.kernels.request import Request, TileConfig
from tflgpu.kernels.tiling import tile_count
from tflgpu.kernels.work_group import SPLIT_K, WARP, cycles, fits, workspace
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import Target

# Rows and columns of a warp's part, in blocks.
WARP_TILES = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 2))

# Of a lane, for operands on their way from memory: in batches, and where others are loaded meanwhile.
BATCH_REGISTERS = 96

PIPELINED_REGISTERS = 64

FEW_WAVES = 2  # of tiles over compute units, in which it is the first load that takes time, and that of the code

# Cycles that one step of one warp takes of the caches for each block of weights, which are 512 bytes in a row, and for
# each block of pixels, which come from four slices; as seen on an H200.
COLUMN_CYCLES = 8

ROW_CYCLES = 20

MASK_BITS = 32  # rows and columns of a window, of which kernels keep in a bit each whether they are in the image


def suits_matrix_units(request: Request, window: Window = POINTWISE, groups: int = 1) -> bool:
    """Whether a node of a convolution, or of a fully connected layer, can run on matrix units.

    A float image of one slice, such as a model's input, is rounded to half if the result will be so too.
    """
    src, dst, target = request.input(0), request.output, request.target
    halves = src.type == "half" or (src.type == "float" and src.slices == 1 and dst.type == "half")
    constant = groups == 1 and request.value(1) is not None and max(window.kernel) <= MASK_BITS
    return target.matrix_units and target.storage == "half" and halves and constant


@dataclass(frozen=True)
class ImplicitGemmTile:
    """What one warp computes, in blocks, how many warps share its steps, and roughly how long the kernel takes."""

    row_blocks: int
    column_blocks: int
    split_k: int
    tiles: int
    cycles: float

    @property
    def config(self) -> TileConfig:
        return self.row_blocks, self.column_blocks, self.split_k


def k_steps_of(window: Window, src: Storage) -> int:
    """Steps of a convolution: blocks of 16 channels of one tap, or of an image of one slice 4 taps."""
    taps = prod(window.kernel)
    return tile_count(taps, SIDE // LANES) if src.slices == 1 else taps * tile_count(src.slices, SIDE // LANES)


def implicit_gemm_tiles(window: Window, src: Storage, dst: Storage, target: Target) -> list[ImplicitGemmTile]:
    """The parts that suit a convolution of ``src`` that gives ``dst``, the best first."""
    k_steps = k_steps_of(window, src)
    rows, columns = tile_count(dst.geometry.pixels, SIDE), tile_count(dst.slices, SIDE // LANES)
    warps = target.local_size // WARP

    def tile(row_blocks: int, column_blocks: int, split_k: int) -> ImplicitGemmTile:
        tiles = tile_count(rows, row_blocks * (warps // split_k)) * tile_count(columns, column_blocks)
        time = cycles(
            target,
            tiles=tiles,
            k_steps=k_steps,
            k_step_cycles=warps * (ROW_CYCLES * row_blocks + COLUMN_CYCLES * column_blocks),
            split_k=split_k,
            vec4s=2 * row_blocks * column_blocks,
        )
        return ImplicitGemmTile(row_blocks, column_blocks, split_k, tiles, time)

    choices = (config for config in product(WARP_TILES, SPLIT_K) if fits(target, config[1], 2 * prod(config[0])))
    return sorted((tile(*blocks, split_k) for blocks, split_k in choices), key=lambda p: p.cycles)


def prefetch_depth(k_steps: int, row_blocks: int, column_blocks: int, *, pipelined: bool = False) -> int:
    """How many of a warp's steps are loaded at once: as many as registers allow, in equal batches."""
    most = max(1, (PIPELINED_REGISTERS if pipelined else BATCH_REGISTERS) // (4 * (row_blocks + column_blocks)))
    return tile_count(k_steps, tile_count(k_steps, most))


def implicit_gemm(
    request: Request, tile: ImplicitGemmTile, window: Window, weights: Array, bias: Array | None
) -> Kernel:
    """weights: [out, kh, kw, in]."""
    src, dst, target = request.input(0), request.output, request.target
    columns = tile_count(dst.slices, SIDE // LANES)
    k_steps_per_split = tile_count(k_steps_of(window, src), tile.split_k)
    input_blocks = tile_count(src.slices, SIDE // LANES)
    template = "nvidia/implicit_gemm"
    if src.slices == 1:
        template, weights = "nvidia/implicit_gemm_few_channels", taps_as_channels(weights)
        input_blocks = k_steps_of(window, src)
    packed = pack_fragments(weights, tile.column_blocks, input_blocks)
    pipelined = tile_count(tile.tiles, target.compute_units) > FEW_WAVES
    return Kernel(
        template,
        {
            "window": window,
            "row_blocks": tile.row_blocks,
            "column_blocks": tile.column_blocks,
            "split_k": tile.split_k,
            "k_steps_per_split": k_steps_per_split,
            "prefetch_depth": prefetch_depth(
                k_steps_per_split, tile.row_blocks, tile.column_blocks, pipelined=pipelined
            ),
            "pipelined": pipelined,
            "input_blocks": input_blocks,
            "column_tiles": tile_count(columns, tile.column_blocks),
            "src": src,
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, padded_bias(bias, len(packed) * SIDE)),
        ),
        tiles=tile.tiles,
        local_size=target.local_size,
        workspace=workspace(target, tile.split_k, 2 * tile.row_blocks * tile.column_blocks),
        macs=dst.geometry.pixels * dst.channels * prod(window.kernel) * src.channels,
    )
