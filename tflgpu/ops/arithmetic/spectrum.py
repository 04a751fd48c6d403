"""RFFT2D, what is read of complex numbers (COMPLEX_ABS, REAL, IMAG), and the Hadamard rotation.

Real and imaginary parts are two tensors. A transform is a product with a matrix of cosines and one of sines: spectra of
sound have some hundred points, and products of matrices are what devices are fast at. A longer one is two, of a pair of
factors of its points, with a rotation between them (Cooley and Tukey's).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.graph.layout import Shape
from tflgpu.model.operator_options import map_of_options
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.declaration import COMPLEX, Emitter, Site, declare, judged, numbers, static
from tflgpu.ops.movement.indexing import Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange, reshape_node

Matrix = NDArray[np.float64]

# Points along an axis of a transform by one product, and by two of them.
MOST_POINTS, MOST_BY_FACTORS = 1024, 8192


def _factors(points: int) -> tuple[int, int] | None:
    """Two factors of ``points`` of which none has more than a product takes, as alike as possible."""
    pairs = ((n, points // n) for n in range(isqrt(points), 0, -1) if points % n == 0)
    return next((pair for pair in pairs if max(pair) <= MOST_POINTS), None)


def is_transformed(points: int) -> bool:
    """Whether the device transforms rows of a length.

    Args:
        points: The length.
    """
    return 0 < points <= MOST_POINTS or (points <= MOST_BY_FACTORS and _factors(points) is not None)


def _transform_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "length")
    length, shape = site.constant(1), site.input(0).shape
    if length is None:
        return
    if length.size != 2 or len(shape) < 2:
        yield f"its input has shape {list(shape)} and its length {length.tolist()}; two lengths and axes were expected"
    elif not all(map(is_transformed, numbers(site, 1))):
        yield (
            f"its transform has {length.tolist()} points; from 1 to {MOST_POINTS}, or two such factors of up to "
            f"{MOST_BY_FACTORS} were expected"
        )


def waves(points: int, frequencies: int, length: int | None = None) -> tuple[Matrix, Matrix]:
    """Return cosines and negative sines in double: [frequencies, length].

    Args:
        points: The length of the transform.
        frequencies: How many, from 0 on.
        length: Points of which elements are wanted; None for all.
    """
    times = np.arange(points if length is None else length)
    angles = 2 * np.pi / points * (np.outer(np.arange(frequencies), times) % points)
    return np.cos(angles), -np.sin(angles)


def fitted(emit: Emitter, x: Tensor, shape: Shape) -> Tensor:
    """Return a tensor that is cut off or filled up with zeros.

    A long row for a transform is in float in every precision.

    Args:
        emit: Gets the node.
        x: The tensor.
        shape: The result's, of the same rank.
    """
    if x.shape == shape:
        return x
    axes = tuple(map(AxisMap, range(len(shape))))
    grows = any(new > old for new, old in zip(shape, x.shape, strict=True))
    fill = 0.0 if grows else None
    return emit.node("rearrange", [x], shape, Rearrange(axes, fill), precise=max(shape[-2:]) > MOST_POINTS)


@declare("RFFT2D", versions=1, inputs=2, integers=(1,), empty=False, reasons=_transform_reasons)
def rfft2d(site: Site, emit: Emitter) -> Tensor:
    """Return the first half of the Fourier transform along the last axis, and its whole along the one before."""
    height, width = numbers(site, 1)
    x = fitted(emit, site.input(0), (*site.input(0).shape[:-2], height, width))
    rows = reshape_node(emit, x, (prod(x.shape) // width, width))
    result = (*x.shape[:-1], width // 2 + 1)
    emit.keep(site.input(0))  # loud frequencies would leave the rounding errors of halves in quiet ones
    real, imaginary = (reshape_node(emit, part, result) for part in real_transform(emit, rows, width))
    if height > 1:
        real, imaginary = _along_columns(emit, real, imaginary)
    return emit.complex(real, imaginary)


def real_transform(emit: Emitter, rows: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """Return the first half of the transform of each row: real and imaginary parts.

    Args:
        emit: Gets the nodes.
        rows: Real numbers [rows, points].
        points: The length of a row.
    """
    frequencies = points // 2 + 1
    if points > MOST_POINTS:
        return _by_factors(emit, rows, None, frequencies)
    cosines, sines = (product(emit, rows, weights) for weights in waves(points, frequencies))
    return cosines, sines


def product(emit: Emitter, rows: Tensor, weights: Matrix) -> Tensor:
    """Return each row times a matrix, in float in every precision.

    Args:
        emit: Gets the node.
        rows: A tensor [rows, elements].
        weights: A matrix [results, elements].
    """
    constant = emit.constant(weights.astype(np.float32))
    return emit.node("fully_connected", [rows, constant], (rows.shape[0], len(weights)), precise=True)


def _by_factors(emit: Emitter, real: Tensor, imaginary: Tensor | None, frequencies: int) -> tuple[Tensor, Tensor]:
    """Return the transform of rows, [rows, points], by two products each; of real ones only what the rest follows
    from."""
    count, points = real.shape
    first, second = judged(_factors(points))
    kept = first if imaginary is not None else first // 2 + 1

    def node(kind: str, inputs: Sequence[Tensor], shape: Shape, attributes: object, *steps: EpilogueOp) -> Tensor:
        return emit.node(kind, inputs, shape, attributes, steps, precise=True)

    def shaped(x: Tensor, shape: Shape) -> Tensor:
        return node("reshape", [x], shape, None)

    # Point j is row j // second, column j % second. Columns first: [count, 2 * kept, second].
    x = shaped(real, (count, first, second))
    cosines, sines = waves(first, kept)
    matrix = np.concatenate((cosines, sines))
    if imaginary is not None:
        x = node("concatenate", [x, shaped(imaginary, x.shape)], (count, 2 * first, second), Concatenate(1))
        matrix = np.block([[cosines, -sines], [sines, cosines]])
    left = emit.constant(matrix.astype(np.float32))
    columns = node("matmul", [left, x], (count, 2 * kept, second), MatMul(adjoint_left=False, adjoint_right=False))
    # Frequency k is k % first of the columns, turned by the column's place, and k // first of the rows.
    parts = [
        node("rearrange", [columns], (count, kept, second), Rearrange((AxisMap(0), AxisMap(1, start), AxisMap(2))))
        for start in (0, kept)
    ]
    turns = [emit.constant(wave.astype(np.float32)) for wave in waves(points, kept, second)]

    def turned(x: Tensor, y: Tensor, function: str) -> Tensor:
        steps = [EpilogueOp("mul", (Value(0), Input(1))), EpilogueOp("mul", (Input(2), Input(3)))]
        return node(
            "map", [x, turns[0], y, turns[1]], x.shape, None, *steps, EpilogueOp(function, (Value(1), Value(2)))
        )

    both = [turned(parts[0], parts[1], "sub"), turned(parts[1], parts[0], "add")]
    rows = node("concatenate", both, (count, kept, 2 * second), Concatenate(2))
    cosines, sines = waves(second, second)
    whole = product(emit, shaped(rows, (count * kept, 2 * second)), np.block([[cosines, -sines], [sines, cosines]]))
    flat = shaped(whole, (count, kept * 2 * second))
    # Frequencies that were left out are those of the same distance from the end, turned the other way.
    k = np.arange(frequencies)
    mirrored = k % first >= kept
    k = np.where(mirrored, points - k, k)

    def found(part: int, steps: Sequence[EpilogueOp], *others: Tensor) -> Tensor:
        places = emit.constant(((k % first * 2 + part) * second + k // first).astype(np.int32))
        gather = Gather((follow(0), Position((Lookup(1, (AxisMap(1),), flat.shape[1] - 1),))))
        return node("gather", [flat, places, *others], (count, frequencies), gather, *steps)

    signs = emit.constant(np.where(mirrored, -1, 1).astype(np.float32))
    return found(0, ()), found(1, [EpilogueOp("mul", (Value(0), Input(2)))], signs)


def _along_columns(emit: Emitter, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
    """Return the transform of complex numbers along the last axis but one."""
    *leading, points, width = real.shape
    if points > MOST_POINTS:
        swapped = (*range(len(leading)), len(leading) + 1, len(leading))
        shape, maps = (*leading, width, points), tuple(map(AxisMap, swapped))
        rows = (prod(leading) * width, points)
        turned = (emit.node("rearrange", [x], shape, Rearrange(maps), precise=True) for x in (real, imaginary))
        first, second = (reshape_node(emit, x, rows) for x in turned)
        parts = _by_factors(emit, first, second, points)
        back = (reshape_node(emit, x, shape) for x in parts)
        real, imaginary = (emit.node("rearrange", [x], real.shape, Rearrange(maps), precise=True) for x in back)
        return real, imaginary
    cosines, sines = (emit.constant(w.astype(np.float32)) for w in waves(points, points))

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
    """Return the magnitude of complex numbers."""
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
    """Return the real part of complex numbers."""
    real, _ = judged(site.input(0).parts)
    return emit.node("map", [real], real.shape)


@declare("IMAG", versions=1, inputs=1, types=COMPLEX_NUMBERS)
def imaginary_part(site: Site, emit: Emitter) -> Tensor:
    """Return the imaginary part of complex numbers."""
    _, imaginary = judged(site.input(0).parts)
    return emit.node("map", [imaginary], imaginary.shape)


MOST_ROTATED = 1024  # elements, the square of which is the size of a constant


def _size(site: Site) -> int:
    """Return the number of neighbours that are rotated together; 0 for options that make no sense."""
    size = map_of_options(site.options["custom_options"]).get("hadamard_size", 0)
    return size if isinstance(size, int) and size > 0 and size & (size - 1) == 0 else 0


def _reasons(site: Site) -> Iterator[str]:
    size, shape = _size(site), site.input(0).shape
    if not 0 < size <= MOST_ROTATED:
        yield f"its options have no hadamard_size that is a power of two up to {MOST_ROTATED:,}"
    elif len(shape) not in (2, 3) or shape[-1] % size:
        yield f"its input has shape {list(shape)}; 2 or 3 axes and rows of a multiple of {size} were expected"


@declare("aeq.hadamard_rotation", versions=1, inputs=1, empty=False, reasons=_reasons)
def hadamard_rotation(site: Site, emit: Emitter) -> Tensor:
    """Return products of parts of rows with a Hadamard matrix, which keep their length."""
    x, size = site.input(0), _size(site)
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.kron(np.array([[1, 1], [1, -1]]), matrix)
    rows = reshape_node(emit, x, (x.size // size, size))
    return reshape_node(emit, product(emit, rows, matrix / np.sqrt(size)), x.shape)
