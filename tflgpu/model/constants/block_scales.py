"""Scales of blocks along the last axis of a constant, which are a tensor of their own (BlockwiseQuantization)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.graph.layout import Shape
from tflgpu.model.constants.packed_integers import unpacked_nibbles
from tflgpu.model.flat_table import FlatTable
from tflgpu.model.model import Blocks, FileTensor

BLOCKWISE = 2  # in the schema's union QuantizationDetails

SCALES, ZERO_POINTS, BLOCK_SIZE = range(3)  # fields of its table

BLOCKED_TYPES = ("int4", "int8")


def with_block_scales(tensor: FileTensor, stored: Any, tensors: tuple[FileTensor, ...]) -> FileTensor:
    """Return a tensor with the scales and zero points of its blocks, if its quantization is one of blocks.

    Args:
        tensor: As the file has it.
        stored: The tensor's flatbuffer table.
        tensors: All tensors of the subgraph.

    Raises:
        ModelError: The scales are not sound: LiteRT's kernels do not look.
    """
    if tensor.dtype not in BLOCKED_TYPES or tensor.data is None:
        return tensor
    table = stored.Quantization()
    if table is None or table.DetailsType() != BLOCKWISE:
        return tensor
    details = FlatTable.of(table.Details())
    size = details.number(BLOCK_SIZE, "i")
    if not tensor.shape or size < 1:
        raise ModelError(f"{_name(tensor)} has blocks of {size} along its last axis; at least 1 was expected")
    shape = (*tensor.shape[:-1], -(-tensor.shape[-1] // size))
    scales = _numbers(tensor, "scales", details.number(SCALES, "i"), tensors, shape)
    if scales.dtype.kind != "f" or not np.isfinite(scales).all():
        raise ModelError(f"{_name(tensor)} has blocks whose scales are not finite floats")
    number = details.number(ZERO_POINTS, "i")
    zeros = None if number <= 0 else _numbers(tensor, "zero points", number, tensors, shape)  # writers give -1 or 0
    zeros = zeros.astype(np.float32) if zeros is not None and zeros.any() else None
    return replace(tensor, blocks=Blocks(size, scales.astype(np.float32), zeros))


def _numbers(tensor: FileTensor, what: str, number: int, tensors: tuple[FileTensor, ...], shape: Shape) -> NDArray[Any]:
    """Return the scales or the zero points of blocks."""
    if not 0 <= number < len(tensors):
        raise ModelError(
            f"{_name(tensor)} has the {what} of its blocks in tensor {number}; the subgraph has {len(tensors)}"
        )
    stored = tensors[number]
    data = stored.data
    if data is not None and stored.dtype == "int4":
        data = unpacked_nibbles(data.view(np.uint8), stored.shape)
    if data is None or data.dtype.kind not in "fiu" or data.shape != shape:
        raise ModelError(
            f"{_name(tensor)} has the {what} of its blocks in tensor {number}, {stored.dtype}{list(stored.shape)}; "
            f"constant numbers of shape {list(shape)} were expected"
        )
    return data


def _name(tensor: FileTensor) -> str:
    return f"tensor {tensor.index} {tensor.name!r} of shape {list(tensor.shape)}"
