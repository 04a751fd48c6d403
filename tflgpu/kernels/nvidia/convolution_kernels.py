"""Convolutions and fully connected layers on matrix units: which can run there, and by which of two kernels."""

from __future__ import annotations

from tflgpu.graph.ir import Array
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.nvidia import AMPERE, implicit_gemm, implicit_gemm_multistage
from tflgpu.kernels.nvidia.costs import GemmWork, MultistageWork
from tflgpu.kernels.nvidia.implicit_gemm import ImplicitGemmTile
from tflgpu.kernels.nvidia.implicit_gemm_multistage import MultistageTile
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import Target

MASK_BITS = 32  # rows and columns of a window: a kernel keeps in a bit each whether they are in the image

GemmCandidate = Candidate[ImplicitGemmTile, GemmWork] | Candidate[MultistageTile, MultistageWork]


def convolution_candidates(window: Window, src: Storage, dst: Storage, target: Target) -> list[GemmCandidate]:
    """The tiles of both kernels for a convolution of ``src`` that gives ``dst``, the fastest first."""
    found: list[GemmCandidate] = [
        *implicit_gemm.candidates(window, src, dst, target),
        *implicit_gemm_multistage.candidates(window, src, dst, target),
    ]
    return sorted(found, key=lambda candidate: candidate.cycles)


def _takes_halves(request: Request) -> bool:
    """Whether image and weights are halves.

    A float image of one slice, such as a model's input, is rounded to half if the result will be so too.
    """
    src, dst = request.input(0), request.output
    halves = src.type == "half" or (src.type == "float" and src.slices == 1 and dst.type == "half")
    return request.target.storage == "half" and halves and request.value(1) is not None


def _is_dense(request: Request) -> bool:
    """Whether a convolution has one group, and a window that is small enough."""
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution)
    return _takes_halves(request) and attributes.groups == 1 and max(attributes.window.kernel) <= MASK_BITS


@AMPERE.lowering("convolution", when=_is_dense)
def convolution(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution)
    return _kernel(request, attributes.window, request.constant(1))


@AMPERE.lowering("fully_connected", when=_takes_halves)
def fully_connected(request: Request) -> Kernel:
    weights = request.constant(1).reshape(request.output.channels, 1, 1, -1)
    return _kernel(request, POINTWISE, weights)


def _kernel(request: Request, window: Window, weights: Array) -> Kernel:
    """weights: [out, kh, kw, in]."""
    found = convolution_candidates(window, request.input(0), request.output, request.target)
    by_config: dict[tuple[int, ...], GemmCandidate] = {candidate.tile.config: candidate for candidate in found}
    chosen, bias = by_config[request.choose(list(by_config))], request.optional_constant(2)
    if isinstance(chosen.tile, MultistageTile) and isinstance(chosen.work, MultistageWork):
        multistage = Candidate(chosen.tile, chosen.work, chosen.cycles)
        return implicit_gemm_multistage.implicit_gemm_multistage(request, multistage, window, weights, bias)
    assert isinstance(chosen.tile, ImplicitGemmTile) and isinstance(chosen.work, GemmWork)
    direct = Candidate(chosen.tile, chosen.work, chosen.cycles)
    return implicit_gemm.implicit_gemm(request, direct, window, weights, bias)
