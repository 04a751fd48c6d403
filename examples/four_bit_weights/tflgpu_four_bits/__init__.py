"""``FourBitDense``: a fully connected layer by weights of 4 bits, with a scale for each block of inputs of an output.

Its kernel is a loader of the skeleton ``portable/item_products.cl.j2``: it says where the operands come from, and has
items, sums, fused functions and stores from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.ir import Tensor
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.portable.matrix_products import ItemProductsParameters
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops import Emitter, Site, declare
from tflgpu.ops.declaration import ANY

ROWS, SLICES = 2, 2  # of an item, at most


def _reasons(site: Site) -> Iterator[str]:
    for number, name in ((1, "weights"), (2, "scales")):
        if site.constant(number) is None:
            yield f"its {name} are no constant"
    if len(site.input(0).shape) != 2:
        yield f"its input has shape {list(site.input(0).shape)}; [rows, depth] was expected"


@declare("FourBitDense", versions=1, inputs=3, types=ANY, reasons=_reasons)
def four_bit_dense(site: Site, emit: Emitter) -> Tensor:
    """Inputs: [rows, depth]; int8 weights [out, depth] of -8 to 7; float scales [out, blocks] of equal blocks of it."""
    rows, out = site.input(0).shape[0], site.input(1).shape[0]
    return emit.node("four_bit_product", [site.input(number) for number in range(3)], (rows, out))


@dataclass(frozen=True, kw_only=True)
class FourBitProductParameters(ItemProductsParameters, template="tflgpu_four_bits/four_bit_product", stores_once=True):
    """Parameters of the template, which is in this package."""

    items: int
    row_items: int
    input_slices: int
    block: int
    blocks: int
    src: Storage


@PORTABLE.lowering("four_bit_product")
def four_bit_product(request: Request) -> Kernel:
    """A work-item computes some rows by some output slices."""
    src, dst, target = request.input(0), request.output, request.target
    weights, scales = request.constant(1), request.constant(2)
    rows, slices, blocks = min(ROWS, dst.batch), min(SLICES, dst.slices), scales.shape[1]
    row_items = tile_count(dst.batch, rows)
    items = row_items * tile_count(dst.slices, slices)
    parameters = FourBitProductParameters(
        rows=rows,
        slices_out=slices,
        split_k=1,
        per_tile=target.local_size,
        items=items,
        row_items=row_items,
        input_slices=src.slices,
        block=src.channels // blocks // 4,
        blocks=blocks,
        src=src,
    )
    arguments = (
        request.activation("src", 0),
        Argument("weights", "int", None, pack_weights(weights)),
        Argument("scales", "float", None, pack_scales(scales)),
    )
    macs = dst.batch * dst.channels * src.channels
    tiles = tile_count(items, target.local_size)
    return Kernel(parameters, arguments, tiles, target.local_size, macs=macs, fills_vectors=True)


def pack_weights(weights: NDArray[np.generic]) -> NDArray[np.int32]:
    """[out, depth] of -8 to 7 -> [slice of the output][slice of the input][2], as the template reads them."""
    out, depth = weights.shape
    padded = np.zeros((-(-out // 4) * 4, -(-depth // 4) * 4), np.uint32)
    padded[:out, :depth] = weights.astype(np.int64) + 8
    by_slice = padded.reshape(padded.shape[0] // 4, 4, padded.shape[1] // 4, 2, 2).transpose(0, 2, 3, 4, 1)
    shifts = np.arange(8, dtype=np.uint32).reshape(2, 4) * 4
    return np.bitwise_or.reduce(by_slice << shifts, axis=(3, 4)).view(np.int32)


def pack_scales(scales: NDArray[np.generic]) -> NDArray[np.float32]:
    """[out, blocks] -> [slice of the output][block][4]."""
    out, blocks = scales.shape
    padded = np.zeros((-(-out // 4) * 4, blocks), np.float32)
    padded[:out] = scales
    return np.ascontiguousarray(padded.reshape(-1, 4, blocks).transpose(0, 2, 1))
