"""Scales of blocks along the last axis of a constant, which are a tensor of their own (BlockwiseQuantization)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tflgpu.model.flat_table import FlatTable
from tflgpu.model.model import FileTensor

BLOCKWISE = 2  # in the schema's union QuantizationDetails

SCALES, ZERO_POINTS, BLOCK_SIZE = range(3)  # fields of its table

BLOCKED_TYPES = ("int4", "int8")


def with_block_scales(tensor: FileTensor, stored: Any, tensors: tuple[FileTensor, ...]) -> FileTensor:
    """``tensor`` with the scales of its blocks, if its quantization is one of blocks.

    stored: the tensor's flatbuffer table. What is not sound stays as it is: then the operators that read it are left to
    LiteRT.
    """
    if tensor.dtype not in BLOCKED_TYPES or tensor.data is None:
        return tensor
    table = stored.Quantization()
    if table is None or table.DetailsType() != BLOCKWISE:
        return tensor
    details = FlatTable.of(table.Details())
    number, size = details.number(SCALES, "i"), details.number(BLOCK_SIZE, "i")
    if not tensor.shape or size < 1 or tensor.shape[-1] % size or not 0 <= number < len(tensors):
        return tensor
    scales, shape = tensors[number].data, (*tensor.shape[:-1], tensor.shape[-1] // size)
    if scales is None or scales.dtype.kind != "f" or scales.shape != shape or _has_zero_points(details, tensors):
        return tensor
    numbers = scales.astype(np.float32)
    if not (np.isfinite(numbers) & (numbers >= 0)).all():
        return tensor
    return replace(tensor, block_scales=numbers)


def _has_zero_points(details: FlatTable, tensors: tuple[FileTensor, ...]) -> bool:
    """Whether there is a tensor of zero points other than 0. Writers give -1 or 0 where there is none."""
    number = details.number(ZERO_POINTS, "i")
    if not 0 < number < len(tensors):
        return False
    data = tensors[number].data
    return data is None or bool(np.any(data))
