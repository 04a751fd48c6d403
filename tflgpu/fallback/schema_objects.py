"""A .tflite file as objects of LiteRT's own schema, whose fields can be changed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.model.flat_table import Bytes, stored_bytes

IDENTIFIER = b"TFL3"

ALIGNMENT = 16  # bytes; LiteRT's kernels load constants from the file with vector instructions

# The fields of a table Buffer by their places in its vtable.
OFFSET, SIZE = 6, 8


def unpacked(data: Bytes) -> Any:
    """Return the file's ``ModelT``, in which every buffer and every operator has its bytes, wherever the file has them.

    Args:
        data: The whole file; constants are views of it.

    Raises:
        ModelError: LiteRT's schema does not know a part of the file, or bytes are not in it.
    """
    from ai_edge_litert import schema_py_generated as schema  # an extra of the package

    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    except Exception as failure:  # the decoder trusts offsets, so damage can make it raise almost any error
        raise ModelError(f"LiteRT's schema cannot read the model: {type(failure).__name__}: {failure}") from failure
    for index, buffer in enumerate(model.buffers or ()):
        buffer.data = stored_bytes(data, f"buffer {index}", buffer.data, buffer.offset, buffer.size)
        buffer.offset = buffer.size = 0
    for operator in (o for graph in model.subgraphs or () for o in graph.operators or ()):
        place = operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize
        if any(place):
            operator.customOptions = stored_bytes(data, "options of an operator", operator.customOptions, *place)
            operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0
    return model


def packed(model: Any) -> bytes:
    """Return the file of a ``ModelT``. The bytes of its buffers lie after the flatbuffer, which could not hold 2 GB.

    So they are copied once only.

    Args:
        model: A ``ModelT``; its buffers are replaced.
    """
    import flatbuffers  # a warm start does without
    from ai_edge_litert import schema_py_generated as schema

    buffers = model.buffers or []
    constants = [_as_array(buffer.data) for buffer in buffers]
    model.buffers = [schema.BufferT(offset=1, size=1) if c.size else schema.BufferT() for c in constants]
    builder: Any = flatbuffers.Builder(1 << 16)
    try:
        builder.Finish(model.Pack(builder), IDENTIFIER)
    finally:
        model.buffers = buffers
    flatbuffer = bytearray(builder.Output())
    sizes = [_padded(len(flatbuffer)), *(_padded(c.size) for c in constants)]
    places = list(accumulate(sizes))
    tables = schema.Model.GetRootAs(flatbuffer, 0)
    for number, (place, constant) in enumerate(zip(places, constants, strict=False)):
        if constant.size:
            table = tables.Buffers(number)._tab
            for field, value in ((OFFSET, place), (SIZE, constant.size)):
                struct.pack_into("<Q", flatbuffer, table.Pos + table.Offset(field), value)
    paddings = (bytes(_padded(part) - part) for part in (len(flatbuffer), *(c.size for c in constants)))
    parts: Sequence[bytearray | memoryview] = (flatbuffer, *(c.data for c in constants))
    return b"".join(part for pair in zip(parts, paddings, strict=True) for part in pair)


def _as_array(data: Any) -> NDArray[np.uint8]:
    """Return the bytes of a buffer, which callers may have given as a list of numbers."""
    return np.ascontiguousarray(() if data is None else data, np.uint8).reshape(-1)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
