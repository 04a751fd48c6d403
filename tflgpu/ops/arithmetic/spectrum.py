"""RFFT2D, and what is read of complex numbers: COMPLEX_ABS, REAL and IMAG.

Real and imaginary parts are two tensors. A transform is a product with a matrix of cosines and one of sines: spectra of
sound have some hundred points, and products of matrices are what devices are fast at.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.graph.layout import Shape
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.declaration import COMPLEX, Array, Emitter, Site, declare, judged, numbers, static
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node

# Points along an axis of a transform: for more, a fast transform on the CPU takes less time than a product.
MOST_POINTS = 1024


def _transform_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "length")
    length, shape = site.constant(1), site.input(0).shape
    if length is None:
        return
    if length.size != 2 or len(shape) < 2:
        yield f"its input has shape {list(shape)} and its length {length.tolist()}; two lengths and axes were expected"
    elif not all(0 < n <= MOST_POINTS for n in numbers(site, 1)):
        yield f"its transform has {length.tolist()} points; from 1 to {MOST_POINTS} along an axis were expected"


def _waves(points: int, frequencies: int) -> tuple[Array, Array]:
    """Cosines and negative sines: [frequencies, points]."""
    angles = 2 * np.pi / points * (np.outer(np.arange(frequencies), np.arange(points)) % points)
    return np.cos(angles).astype(np.float32), (-np.sin(angles)).astype(np.float32)


def _fitted(emit: Emitter, x: Tensor, shape: Shape) -> Tensor:
    """``x`` cut off or filled up with zeros to ``shape``."""
    if x.shape == shape:
        return x
    axes = tuple(map(AxisMap, range(len(shape))))
    grows = any(new > old for new, old in zip(shape, x.shape, strict=True))
    return emit.node("rearrange", [x], shape, Rearrange(axes, fill=0.0 if grows else None))


@declare("RFFT2D", versions=1, inputs=2, integers=(1,), empty=False, reasons=_transform_reasons)
def rfft2d(site: Site, emit: Emitter) -> Tensor:
    """The first half of the Fourier transform along the last axis, and its whole along the one before."""
    height, width = numbers(site, 1)
    frequencies = width // 2 + 1
    x = _fitted(emit, site.input(0), (*site.input(0).shape[:-2], height, width))
    rows = reshape_node(emit, x, (prod(x.shape) // width, width))
    result = (*x.shape[:-1], frequencies)
    emit.keep(site.input(0))  # loud frequencies would leave the rounding errors of halves in quiet ones
    real, imaginary = (
        reshape_node(emit, _product(emit, rows, weights), result) for weights in _waves(width, frequencies)
    )
    if height > 1:
        real, imaginary = _along_columns(emit, real, imaginary)
    return emit.complex(real, imaginary)


def _product(emit: Emitter, rows: Tensor, weights: Array) -> Tensor:
    shape = rows.shape[0], weights.shape[0]
    return emit.node("fully_connected", [rows, emit.constant(weights)], shape, precise=True)


def _along_columns(emit: Emitter, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
    """The transform of complex numbers along the last axis but one."""
    cosines, sines = (emit.constant(w) for w in _waves(real.shape[-2], real.shape[-2]))

    def product(left: Tensor, right: Tensor) -> Tensor:
        return emit.node("matmul", [left, right], right.shape, MatMul(adjoint_left=False, adjoint_right=False))

    def joined(function: str, x: Tensor, y: Tensor) -> Tensor:
        return emit.node("map", [x, y], x.shape, None, (EpilogueOp(function, (Value(0), Input(1))),))

    return (
        joined("sub", product(cosines, real), product(sines, imaginary)),
        joined("add", product(sines, real), product(cosines, imaginary)),
    )


COMPLEX_NUMBERS = frozenset((COMPLEX,))


@declare("COMPLEX_ABS", versions=1, inputs=1, types=COMPLEX_NUMBERS)
def complex_abs(site: Site, emit: Emitter) -> Tensor:
    """The magnitude of complex numbers."""
    real, imaginary = judged(site.input(0).parts)
    epilogue = (
        EpilogueOp("square", (Value(0),)),
        EpilogueOp("square", (Input(1),)),
        EpilogueOp("add", (Value(1), Value(2))),
        EpilogueOp("sqrt", (Value(3),)),
    )
    return emit.node("map", [real, imaginary], real.shape, None, epilogue)


@declare("REAL", versions=1, inputs=1, types=COMPLEX_NUMBERS)
def real_part(site: Site, emit: Emitter) -> Tensor:
    """The real part of complex numbers."""
    real, _ = judged(site.input(0).parts)
    return emit.node("map", [real], real.shape)


@declare("IMAG", versions=1, inputs=1, types=COMPLEX_NUMBERS)
def imaginary_part(site: Site, emit: Emitter) -> Tensor:
    """The imaginary part of complex numbers."""
    _, imaginary = judged(site.input(0).parts)
    return emit.node("map", [imaginary], imaginary.shape)
