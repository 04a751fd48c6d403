"""The two kernels of convolutions on matrix units, and which is the faster."""

from __future__ import annotations

from tflgpu.graph.ir import Array
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.nvidia.implicit_gemm import MatrixPart, convolution_mma, matrix_parts
from tflgpu.kernels.nvidia.implicit_gemm_multistage import StagedPart, convolution_staged_mma, staged_parts
from tflgpu.kernels.request import Request
from tflgpu.ops.image.window import Window
from tflgpu.target import Target


def convolution_parts(window: Window, src: Storage, dst: Storage, target: Target) -> list[MatrixPart | StagedPart]:
    """The parts of both kernels that suit a convolution of ``src`` that gives ``dst``, the best first."""
    parts: list[MatrixPart | StagedPart] = [
        *matrix_parts(window, src, dst, target),
        *staged_parts(window, src, dst, target),
    ]
    return sorted(parts, key=lambda part: part.cycles)


def matrix_convolution(request: Request, window: Window, weights: Array, bias: Array | None) -> Kernel:
    """weights: [out, kh, kw, in]."""
    part = request.choose_part(convolution_parts(window, request.input(0), request.output, request.target))
    if isinstance(part, StagedPart):
        return convolution_staged_mma(request, part, window, weights, bias)
    return convolution_mma(request, part, window, weights, bias)
