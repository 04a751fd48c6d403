"""Convolutions and fully connected layers on tensor cores: which can run there, and by which loader."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tflgpu.graph.ir import Array
from tflgpu.kernels.candidates import Candidate, Tile, Work
from tflgpu.kernels.convolutions import Phases, is_vector_product, phases_of
from tflgpu.kernels.gpu.convolution_kernels import candidates as plain_candidates
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import GemmWork
from tflgpu.kernels.mma.gemm import k_tiles, packed_weights, patch, row_major, rows
from tflgpu.kernels.mma.gemm.k_tiles import MultistageTile
from tflgpu.kernels.mma.gemm.packed_weights import WarpTile
from tflgpu.kernels.mma.gemm.patch import PatchTile
from tflgpu.kernels.mma.gemm.row_major import RowMajorTile
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands, OperandType
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import ITEM_BYTES, Target
from tflgpu.target.corrections import corrected

# Taps of all phases of a transposed convolution by those of its window, at most, with the zeros that are multiplied. A
# window of 3 x 3 and a stride of 2 give 16 / 9.
PADDED_TAPS = 4


def convolution_candidates(
    operands: Operands, window: Window, src: Storage, dst: Storage, target: Target, shares: int = 1, joined: int = 0
) -> list[Candidate[Tile, Work]]:
    """Return the tiles of all kernels for a convolution of ``src`` that gives ``dst``, the fastest first.

    Only one of them can compute ``shares`` of it. joined: how many tensors of its shape join the result.
    """
    shapes = operands, window, src, dst, target
    if shares > 1:
        return [*packed_weights.candidates(*shapes, shares=shares)]
    patches = patch.candidates(*shapes)
    found: list[Candidate[Tile, Work]] = [
        *packed_weights.candidates(*shapes),
        *(patches or k_tiles.candidates(*shapes, joined)),
        *row_major.candidates(*shapes, joined),
    ]
    return sorted(found, key=lambda candidate: candidate.cycles)


def _image(request: Request) -> OperandType:
    """Return what products take of the image.

    A float image of one slice, such as a model's input, is rounded to half if the result will be so too, unless the
    graph marks it as precise.
    """
    src, dst = request.input(0), request.output
    rounds = src.type == "float" and src.slices == 1 and dst.type == request.target.storage == "half"
    rounded = rounds and not request.graph[request.node.inputs[0]].precise
    return "half" if src.type == "half" or rounded else "float"


def _operands(request: Request) -> Operands:
    return Operands(_image(request), request.target.storage)


def _are_numbers(request: Request) -> bool:
    """Whether image and weights are floats or halves, and weights are constant."""
    return request.input(0).type in ("float", "half") and request.is_constant(1)


def _is_dense(request: Request) -> bool:
    """Whether a convolution has one group; of floats, whether tensor cores are faster."""
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution | TransposeConvolution)
    if not _are_numbers(request) or attributes.groups > 1:
        return False
    phases = phases_of(request)
    if phases and max(phases.window.kernel) > 8 * ITEM_BYTES["int"]:  # a bit each says whether a row is there
        return False
    if phases and phases.count * prod(phases.window_of_phase.kernel) > PADDED_TAPS * prod(phases.window.kernel):
        return False
    operands = _operands(request)
    if operands.are_halves:
        return True
    if is_vector_product(request):
        return _has_rows(request)
    by_work_items = plain_candidates(request, request.target)[0].cycles
    return corrected("mma/gemm of floats", _least_cycles(request), by_work_items) < by_work_items


def _least_cycles(request: Request) -> float:
    """Return the least cycles of a convolution on tensor cores."""
    return (_best_of_phases(request) if phases_of(request) else _best(request)).cycles


def _candidates_of_phases(request: Request, operands: Operands, phases: Phases) -> list[Candidate[WarpTile, GemmWork]]:
    """Return the tiles of a transposed convolution, whose phases are convolutions side by side."""
    dst = replace(request.output, geometry=phases.geometry(request.output.channels))
    shapes = operands, phases.window_of_phase, request.input(0), dst, request.target
    return packed_weights.candidates(*shapes, phases.count, request.shares)


def _best_of_phases(request: Request) -> Candidate[WarpTile, GemmWork]:
    phases = phases_of(request)
    assert phases is not None
    return _candidates_of_phases(request, _operands(request), phases)[0]


def _has_rows(request: Request) -> bool:
    """Whether a fully connected layer has operands for tensor cores, and of floats more rows than one block.

    A single row reads each weight once, so that weights that may stay integers are left to the kernel that reads these.
    """
    if request.output.geometry.pixels == 1 and request.graph[request.node.inputs[1]].scale is not None:
        return False
    return _are_numbers(request) and (_operands(request).are_halves or request.output.geometry.pixels > UNIT.side)


def _window(request: Request) -> Window:
    """Return the window of a convolution; a pixel for a fully connected layer."""
    attributes = request.node.attributes
    return attributes.window if isinstance(attributes, Convolution) else POINTWISE


def _candidates(request: Request) -> list[Candidate[Tile, Work]]:
    """Return the tiles of a convolution or a fully connected layer, the fastest first."""
    dst = request.output
    shapes = _operands(request), _window(request), request.input(0), dst, request.target
    joined = sum(request.shape(index).shape == dst.geometry.shape for index in request.node.epilogue_inputs)
    return convolution_candidates(*shapes, request.shares, joined)


def _best(request: Request) -> Candidate[Tile, Work]:
    return _candidates(request)[0]


def _has_rows_of_pairs(request: Request) -> bool:
    """Whether a convolution can share rows of its image in local memory."""
    shapes = request.attributes(Convolution).window, request.input(0), request.output, request.target
    return _is_dense(request) and rows.is_possible(_operands(request), *shapes)


def _best_of_rows(request: Request) -> Candidate[Tile, Work] | None:
    """None for shares, which there are only where compute units would be idle."""
    if request.shares > 1:
        return None
    return rows.best(request.attributes(Convolution).window, request.input(0), request.output, request.target)


@MMA.lowering("convolution", when=_has_rows_of_pairs, best=_best_of_rows)
def convolution_of_rows(request: Request) -> Kernel:
    """Return a convolution of few channels whose warps share rows of the image in local memory."""
    window, weights, bias = request.attributes(Convolution).window, request.constant(1), request.optional_constant(2)
    return rows.kernel(request, window, weights, bias)


@MMA.lowering("convolution", when=_is_dense, after=("convolution_of_rows",), best=_best)
def convolution(request: Request) -> Kernel:
    """Return a dense convolution, by the loader that the cost model ranks first."""
    return _kernel(request, request.constant(1))


@MMA.lowering("transpose_convolution", when=_is_dense, best=_best_of_phases)
def transpose_convolution(request: Request) -> Kernel:
    """Return a transposed convolution, whose phases are convolutions side by side."""
    operands, phases = _operands(request), phases_of(request)
    assert phases is not None
    chosen = request.choose_candidate(_candidates_of_phases(request, operands, phases))
    weights, bias = phases.weights(request.constant(1)), request.optional_constant(2)
    return packed_weights.kernel(request, operands.image, chosen, phases.window_of_phase, weights, bias)


@MMA.lowering("fully_connected", when=_has_rows, best=_best)
def fully_connected(request: Request) -> Kernel:
    """Return a fully connected layer of many rows, as a pointwise convolution."""
    weights = request.constant(1).reshape(request.output.channels, 1, 1, -1)
    return _kernel(request, weights)


def _kernel(request: Request, weights: Array) -> Kernel:
    """weights: [out, kh, kw, in]."""
    window, bias = _window(request), request.optional_constant(2)
    chosen = request.choose_candidate(_candidates(request))
    match chosen.tile, chosen.work:
        case PatchTile() as of_patch, _:
            return patch.kernel(request, of_patch, weights, bias)
        case RowMajorTile() as of_rows, _:
            return row_major.kernel(request, of_rows, weights, bias)
        case MultistageTile() as staged, _:
            return k_tiles.kernel(request, staged, window, weights, bias)
        case WarpTile() as direct, GemmWork() as work:
            candidate = Candidate(direct, work, chosen.cycles)
            return packed_weights.kernel(request, _image(request), candidate, window, [weights], bias)
    raise TypeError(f"{chosen.tile} is no tile of a convolution")
