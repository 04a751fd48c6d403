"""PHWC4: where the element of a tensor lies in device memory.

A tensor of logical shape ``(..., H, W, C)`` is stored as ``[B][ceil(C/4)][H][W][4]``. Four neighbouring channels of a
pixel are a *vec4*; the vec4s of the same four channels are a *slice*, a plane of H*W pixels. Lanes past C in the last
slice are zero. A missing H or W is 1; axes before H fold into B. Offsets count vec4s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

LANES = 4

Shape = tuple[int, ...]

# An integer of a template's parameters in which kernels of the same text may differ. A dataclass that templates see
# names the type of such a field so, and codegen then lets functions that differ in sizes only be one. All integers of a
# tensor's storage are sizes. How a text is unrolled is none, nor how long an array is.
Size: TypeAlias = int


@dataclass(frozen=True)
class Geometry:
    """The storage of one logical shape."""

    shape: Shape

    @cached_property
    def channels(self) -> int:
        """Extent of the last axis."""
        return self.shape[-1] if self.shape else 1

    @cached_property
    def width(self) -> int:
        """Extent of the second last axis, of tensors of three axes and more."""
        return self.shape[-2] if len(self.shape) >= 3 else 1

    @cached_property
    def height(self) -> int:
        """Extent of the third last axis, of tensors of four axes and more."""
        return self.shape[-3] if len(self.shape) >= 4 else 1

    @cached_property
    def batch_axes(self) -> Shape:
        """The leading logical axes that are folded into B."""
        rank = len(self.shape)
        return self.shape[: rank - 3] if rank >= 4 else self.shape[:1] if rank >= 2 else ()

    @cached_property
    def batch(self) -> int:
        """How many images there are."""
        return prod(self.batch_axes)

    @property
    def slices(self) -> int:
        """How many vec4s a pixel has."""
        return -(-self.channels // LANES)

    @property
    def plane(self) -> int:
        """Pixels of one slice."""
        return self.height * self.width

    @property
    def pixels(self) -> int:
        """Pixels of all images."""
        return self.batch * self.plane

    @property
    def vec4s(self) -> int:
        """Vec4s of all images."""
        return self.batch * self.slices * self.plane

    @property
    def elements(self) -> int:
        """Stored elements, the zero lanes included."""
        return self.vec4s * LANES

    @cached_property
    def bhwc(self) -> tuple[int, int, int, int]:
        """The shape as [batch, height, width, channels]."""
        return self.batch, self.height, self.width, self.channels

    @cached_property
    def axis_strides(self) -> Shape:
        """vec4s between neighbours along each logical axis but the last."""
        image = self.slices * self.plane
        leading = [image * prod(self.batch_axes[i + 1 :]) for i in range(len(self.batch_axes))]
        spatial = {0: [], 1: [1], 2: [self.width, 1]}[min(2, max(0, len(self.shape) - 2))]
        return tuple(leading + spatial)

    @property
    def is_linear(self) -> bool:
        """Whether PHWC4 and the host's row-major order are the same bytes, up to padding after the last element."""
        return (self.plane == 1 and (self.batch == 1 or self.channels % LANES == 0)) or (self.channels == LANES)


@lru_cache(maxsize=4096)
def geometry_of(shape: Shape) -> Geometry:
    """Return the storage of a shape, the same object each time: deep models ask for few shapes, and often."""
    return Geometry(shape)


def without_units(axes: Shape) -> Shape:
    """Return axes without those of size 1 before the first larger one.

    Args:
        axes: Sizes; all may be 1, which leaves none.
    """
    return next((axes[i:] for i, size in enumerate(axes) if size > 1), ())


def keeps_bytes(old: Shape, new: Shape) -> bool:
    """Whether a reshape leaves every element where it is in PHWC4.

    Args:
        old: The shape before.
        new: The shape after, with the same number of elements.
    """
    a, b = geometry_of(old), geometry_of(new)
    same_planes = (a.batch, a.plane, a.channels) == (b.batch, b.plane, b.channels)
    same_pixels = a.channels == b.channels <= LANES
    return same_planes or same_pixels or (a.is_linear and b.is_linear)


def pack(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the PHWC4 elements of a row-major array: flat, with zeros in the lanes past the last channel.

    Args:
        array: Of any rank and type.
    """
    g = Geometry(tuple(array.shape))
    b, h, w, c = g.bhwc
    padded = np.zeros((b, h, w, g.slices * LANES), array.dtype)
    padded[..., :c] = array.reshape(b, h, w, c)
    return np.ascontiguousarray(padded.reshape(b, h, w, g.slices, LANES).transpose(0, 3, 1, 2, 4)).reshape(-1)


def unpack(elements: NDArray[np.generic], shape: Shape) -> NDArray[np.generic]:
    """Return the inverse of :func:`pack`: the row-major array.

    Args:
        elements: PHWC4, flat; there may be more than the shape needs.
        shape: The shape of the result.
    """
    g = Geometry(shape)
    b, h, w, c = g.bhwc
    planes = elements[: g.elements].reshape(b, g.slices, h, w, LANES)
    return planes.transpose(0, 2, 3, 1, 4).reshape(b, h, w, g.slices * LANES)[..., :c].reshape(shape)
