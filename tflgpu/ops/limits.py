"""What kernels can count: they compute places in memory in ints."""

from __future__ import annotations

from collections.abc import Iterator

from tflgpu.graph.layout import LANES, Geometry, Shape

GREATEST_INT = 2**31 - 1

# Elements of a tensor that an operator makes of a few numbers. As floats they take 1 GiB.
MOST_MADE = 1 << 28

# Pixels past the last one that a kernel may compute, and not store, to fill its last block.
BLOCK_MARGIN = 16


def storage_reasons(what: str, shape: Shape) -> Iterator[str]:
    """The obstacle that ``what`` of ``shape`` has more elements in memory than kernels can count."""
    elements = Geometry(shape).elements + 4 * LANES  # with room for a 16-lane access at the last vec4
    if elements > GREATEST_INT:
        yield f"its {what} of shape {list(shape)} has {elements} elements in memory; kernels count to {GREATEST_INT}"


def made_reasons(elements: int) -> Iterator[str]:
    """The obstacle that an operator makes a tensor of ``elements`` of next to nothing."""
    if elements > MOST_MADE:
        yield f"its result has {elements} elements; at most {MOST_MADE} are made on the device"
