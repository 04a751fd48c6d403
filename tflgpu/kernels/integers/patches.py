"""Rectangles of a convolution's output, and how what their windows see is packed.

A rectangle sees a patch of the image. Pixels that are a stride apart are neighbours in a packed patch: it has planes of
rows by columns. So the pixels that the windows of a row of the output see at one tap are neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.window import Window
from tflgpu.target.kernel_numbers import kernel_numbers


@dataclass(frozen=True, kw_only=True)
class PatchNumbers:
    """Numbers of rectangles of outputs, whose windows see one packed patch.

    Attributes:
        most_positions: Positions of a rectangle: their sums are in a core's first cache.
        least_columns: Columns of a rectangle, unless the output is narrower: short rows cost more to pack.
        row_cycles: Cycles to pack a row of a plane.
        pixel_cycles: Cycles to pack each of its pixels.
    """

    most_positions: int
    least_columns: int
    row_cycles: int
    pixel_cycles: float


NUMBERS = kernel_numbers("integers/patches", PatchNumbers)


@dataclass(frozen=True)
class Planes:
    """The planes of a patch along one axis, of ``length`` pixels each.

    first: the first pixel of each, from that of the patch on. taps: of each tap its plane, and its first pixel there.
    """

    first: tuple[int, ...]
    length: int
    taps: tuple[tuple[int, int], ...]


def planes_of(extent: int, kernel: int, stride: int, dilation: int) -> tuple[Planes, Planes]:
    """Return the planes for ``extent`` outputs of an axis: one of each remainder by the stride, or one of each tap."""
    places = [tap * dilation for tap in range(kernel)]
    remainders = sorted({place % stride for place in places})
    taps = tuple((remainders.index(place % stride), place // stride) for place in places)
    shared = Planes(tuple(remainders), extent + places[-1] // stride, taps)
    return shared, Planes(tuple(places), extent, tuple((tap, 0) for tap in range(kernel)))


@dataclass(frozen=True)
class Patch:
    """A rectangle of ``run_rows`` by ``run_columns`` of the output, and the planes of the patch that it sees."""

    run_rows: int
    run_columns: int
    rows: Planes
    columns: Planes

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return len(self.rows.taps) * len(self.columns.taps)

    @property
    def positions(self) -> int:
        """From the first pixel of the output to the last one, in a plane."""
        return (self.run_rows - 1) * self.columns.length + self.run_columns

    @property
    def slice_pixels(self) -> int:
        """Pixels of a slice of a packed patch."""
        return self.slice_rows * self.columns.length

    @property
    def slice_rows(self) -> int:
        """Rows of all planes of a slice."""
        return len(self.rows.first) * self.rows.length * len(self.columns.first)

    def packing_cycles(self, slices: int) -> float:
        """In which a core packs ``slices`` slices."""
        return slices * self.slice_rows * (NUMBERS.row_cycles + NUMBERS.pixel_cycles * self.columns.length)

    def offsets(self, slices: int) -> Array:
        """Pixels from a packed patch's first one to that of its first window: [slice][row of taps][tap]."""
        columns = self.columns
        taps = [
            ((row_plane * len(columns.first) + plane) * self.rows.length + y) * columns.length + x
            for (row_plane, y), (plane, x) in product(self.rows.taps, columns.taps)
        ]
        every: Array = np.arange(slices)[:, None] * self.slice_pixels + np.array(taps)
        return every


@cache
def best_patch(window: Window, height: int, width: int, slices: int, rows: int, cycles_of_block: float) -> Patch:
    """Return the rectangles that take the least time for an output of ``height`` x ``width``.

    rows: of a block of sums, whose products take ``cycles_of_block`` cycles, with all output channels.
    """

    def cycles(patch: Patch) -> float:
        runs = tile_count(height, patch.run_rows) * tile_count(width, patch.run_columns)
        return runs * (tile_count(patch.positions, rows) * cycles_of_block + patch.packing_cycles(slices))

    most_parts = tile_count(width, NUMBERS.least_columns)
    patches = (
        Patch(run_rows, run_columns, row_planes, column_planes)
        for run_columns in {tile_count(width, parts): None for parts in range(1, most_parts + 1)}
        for run_rows in range(1, min(height, max(1, NUMBERS.most_positions // run_columns)) + 1)
        for row_planes in planes_of(run_rows, window.kernel[0], window.stride[0], window.dilation[0])
        for column_planes in planes_of(run_columns, window.kernel[1], window.stride[1], window.dilation[1])
    )
    return min((patch for patch in patches if patch.positions <= NUMBERS.most_positions), key=cycles)
