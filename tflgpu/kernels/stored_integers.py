"""Weights that stay integers in device memory: whole numbers of 4 or 8 bits, and the scales that multiply them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from tflgpu.graph.ir import Array, Tensor
from tflgpu.graph.layout import LANES
from tflgpu.kernels.kernel import Argument
from tflgpu.kernels.packing import pack_dense
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import output_channel_axis
from tflgpu.target import WIDEST, Target

ROWS_AT_ONCE = 1 << 20  # elements, about, that are divided by their scales together


@dataclass(frozen=True)
class StoredIntegers:
    """The weights of a layer as whole numbers.

    integers: [out, depth]. scales: [out, blocks]. block: how many inputs have the same scale. bits: of an integer.
    """

    integers: Array
    scales: Array
    block: int
    bits: int

    @property
    def together(self) -> int:
        """How many integers are in a byte: those of neighbouring inputs."""
        return 8 // self.bits

    def scale_block(self, inputs: int) -> int:
        """Return how many inputs have the same scale.

        Args:
            inputs: The padded depth.
        """
        return self.block if self.scales.shape[1] > 1 else inputs

    def weights(self, name: str, block: int, inputs: int) -> Argument:
        """Return the integers in the order of :func:`pack_dense`.

        A byte of two integers has that of the input with the even number in its lower half.

        Args:
            name: The argument's in C.
            block: Outputs of a block.
            inputs: The padded depth.
        """
        packed = pack_dense(self.integers[:, None, None, :], block, inputs, np.int8)
        if self.together == 2:
            packed = packed[..., ::2, :] & 15 | packed[..., 1::2, :] << 4
        return Argument(name, "char", None, packed)

    def scales_argument(self, outputs: int) -> Argument:
        """Return the scales [block of inputs][output].

        Args:
            outputs: The last of them have none, and 0.
        """
        padded = np.zeros((self.scales.shape[1], outputs), np.float32)
        padded[:, : len(self.scales)] = self.scales.T
        return Argument("scales", "float", None, padded)


def packed_block(target: Target) -> int:
    """How many outputs have their weights side by side in the layout that kernels of one row read."""
    return WIDEST if target.family == "cpu" else LANES


def stored_integers(request: Request) -> StoredIntegers | None:
    """Return the weights of a fully connected layer, or of a convolution that is one, if they are whole multiples of
    scales.

    None if they need more than 8 bits, or if blocks of the same scale are no whole slices.
    """
    if output_channel_axis(request.node) != 0:
        return None
    return integers_of(request.graph[request.node.inputs[1]], request.output.geometry.channels)


def integers_of(weights: Tensor, out: int) -> StoredIntegers | None:
    """Return a constant, as :func:`stored_integers`; None if it is none of integers.

    Args:
        weights: The constant.
        out: Its rows.
    """
    elements, scale = weights.data if weights.scale is not None else None, weights.scale
    if elements is None or scale is None:
        return None
    data = elements.reshape(out, -1)
    if scale.size == 1 or (scale.size == out and scale.shape[0] == out):
        scales, block = np.broadcast_to(scale.reshape(-1, 1), (out, 1)), data.shape[1]
    elif scale.shape == (out, scale.size // out) and data.shape[1] % scale.shape[1] == 0:
        scales, block = _blocks(scale, data.shape[1])
    elif scale.size == data.size:
        scales, block = _blocks(scale.reshape(data.shape), data.shape[1])
    else:
        return None
    if not np.isfinite(scales).all() or (scales.shape[1] > 1 and block % LANES):
        return None
    integers = np.empty(data.shape, np.int8)
    least = most = 0
    for first in range(0, out, rows := max(1, ROWS_AT_ONCE // data.shape[1])):
        own = scales[first : first + rows, :, None]
        part = data[first : first + rows].reshape(len(own), -1, block)
        whole = np.rint(np.divide(part, own, out=np.zeros(part.shape), where=own != 0))
        if not np.isfinite(whole).all():
            return None
        least, most = min(least, int(whole.min())), max(most, int(whole.max()))
        if least < -128 or most > 127:
            return None
        integers[first : first + rows] = whole.reshape(len(own), -1)
    return StoredIntegers(integers, scales.astype(np.float32), block, 4 if least >= -8 and most < 8 else 8)


def _blocks(scale: Array, depth: int) -> tuple[Array, int]:
    """Return the scales of the longest blocks of inputs in which every output has a single one, and how long these are.

    scale: of blocks or elements. depth: inputs.
    """
    size = depth // scale.shape[1]
    changes = size * (np.flatnonzero((scale[:, 1:] != scale[:, :-1]).any(axis=0)) + 1)
    block = gcd(depth, *changes.tolist())
    return scale[:, :: block // size], block
