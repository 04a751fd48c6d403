"""The Hadamard rotation, a custom operator that LiteRT has built in: it spreads outliers before a quantized layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.model.operator_options import map_of_options
from tflgpu.ops.arithmetic.spectrum import product
from tflgpu.ops.declaration import Emitter, Site, declare
from tflgpu.ops.movement.shaping import reshape_node

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
