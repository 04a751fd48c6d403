"""The two kernels of convolutions on matrix units, and which is the faster."""

from __future__ import annotations

from tflgpu.graph.ir import Array
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.nvidia.implicit_gemm import ImplicitGemmTile, implicit_gemm, implicit_gemm_tiles
from tflgpu.kernels.nvidia.implicit_gemm_multistage import MultistageTile, implicit_gemm_multistage, multistage_tiles
from tflgpu.kernels.request import Request
from tflgpu.ops.image.window import Window
from tflgpu.target import Target


def convolution_tiles(
    window: Window, src: Storage, dst: Storage, target: Target
) -> list[ImplicitGemmTile | MultistageTile]:
    """The parts of both kernels that suit a convolution of ``src`` that gives ``dst``, the best first."""
    tiles: list[ImplicitGemmTile | MultistageTile] = [
        *implicit_gemm_tiles(window, src, dst, target),
        *multistage_tiles(window, src, dst, target),
    ]
    return sorted(tiles, key=lambda tile: tile.cycles)


def matrix_unit_convolution(request: Request, window: Window, weights: Array, bias: Array | None) -> Kernel:
    """weights: [out, kh, kw, in]."""
    tile = request.choose_candidate(convolution_tiles(window, request.input(0), request.output, request.target))
    if isinstance(tile, MultistageTile):
        return implicit_gemm_multistage(request, tile, window, weights, bias)
    return implicit_gemm(request, tile, window, weights, bias)
