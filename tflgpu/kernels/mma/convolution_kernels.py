"""Convolutions and fully connected layers on matrix units: which can run there, and by which of two kernels."""

from __future__ import annotations

from tflgpu.graph.ir import Array
from tflgpu.kernels.candidates import Candidate, Tile, Work
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.mma import MMA, implicit_gemm, implicit_gemm_multistage
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import Target

MASK_BITS = 32  # rows and columns of a window: a kernel keeps in a bit each whether they are in the image


def convolution_candidates(window: Window, src: Storage, dst: Storage, target: Target) -> list[Candidate[Tile, Work]]:
    """The tiles of both kernels for a convolution of ``src`` that gives ``dst``, the fastest first."""
    shapes = window, src, dst, target
    found: list[Candidate[Tile, Work]] = [
        *implicit_gemm.candidates(*shapes),
        *implicit_gemm_multistage.candidates(*shapes),
    ]
    return sorted(found, key=lambda candidate: candidate.cycles)


def _takes_halves(request: Request) -> bool:
    """Whether image and weights are halves.

    A float image of one slice, such as a model's input, is rounded to half if the result will be so too, unless the
    graph marks it as precise.
    """
    src, dst = request.input(0), request.output
    rounds = src.type == "float" and src.slices == 1 and dst.type == "half"
    halves = src.type == "half" or (rounds and not request.graph[request.node.inputs[0]].precise)
    return request.target.storage == "half" and halves and request.value(1) is not None


def _is_dense(request: Request) -> bool:
    """Whether a convolution has one group, and a window that is small enough."""
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution)
    return _takes_halves(request) and attributes.groups == 1 and max(attributes.window.kernel) <= MASK_BITS


@MMA.lowering("convolution", when=_is_dense)
def convolution(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution)
    return _kernel(request, attributes.window, request.constant(1))


@MMA.lowering("fully_connected", when=_takes_halves)
def fully_connected(request: Request) -> Kernel:
    weights = request.constant(1).reshape(request.output.channels, 1, 1, -1)
    return _kernel(request, POINTWISE, weights)


def _kernel(request: Request, window: Window, weights: Array) -> Kernel:
    """weights: [out, kh, kw, in]."""
    shapes, bias = (window, request.input(0), request.output, request.target), request.optional_constant(2)
    config = request.choose([candidate.tile.config for candidate in convolution_candidates(*shapes)])
    for staged in implicit_gemm_multistage.candidates(*shapes):
        if staged.tile.config == config:
            return implicit_gemm_multistage.implicit_gemm_multistage(request, staged, window, weights, bias)
    direct = next(c for c in implicit_gemm.candidates(*shapes) if c.tile.config == config)
    return implicit_gemm.implicit_gemm(request, direct, window, weights, bias)
