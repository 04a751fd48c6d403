"""The constants of a file: those outside of it, their scales by blocks, and dense forms of sparse ones.

A tensor names an ``ExternalBuffer`` of the model by its id, and that a range of a named group of bytes. A .litertlm
file has these bytes in a section beside the model's. :func:`without_external_buffers` makes a .tflite file like any
other of them, which the rest of the package and LiteRT read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.graph.layout import Shape
from tflgpu.model.flat_table import LAST_PLACEHOLDER, FlatTable
from tflgpu.model.model import Blocks, FileTensor, Subgraph
from tflgpu.model.sparsity import unpacked_nibbles

# Fields of Model, Tensor, ExternalBufferGroup and ExternalBuffer. The package ``tflite`` knows neither of the last two.
MODEL_BUFFERS, MODEL_GROUPS, MODEL_EXTERNAL = 4, 8, 9
TENSOR_BUFFER, TENSOR_EXTERNAL = 2, 10
GROUP_NAME = 0
ID, GROUP, OFFSET, LENGTH, PACKING = range(5)

# "unpacked" is what TensorFlow's converter writes for bytes that lie as in a buffer.
PLAIN_PACKINGS = ("", "unpacked")

ALIGNMENT = 64  # bytes, of the weights' beginning

_BUFFER_VTABLE = struct.pack("<5H", 10, 24, 0, 8, 16)  # no data; offset and size, which are after it

_DAMAGE = (struct.error, IndexError, TypeError, ValueError, OverflowError, AttributeError)


def external_buffer(tensor: Any) -> int:
    """Return the id of the external buffer of a tensor, 0 if it has none.

    Args:
        tensor: A table Tensor.
    """
    return FlatTable.of(tensor).number(TENSOR_EXTERNAL, "I")


def without_external_buffers(model: bytes, group: str, size: int | None) -> bytes | None:
    """Return a model whose tensors of external buffers refer to bytes after it.

    The caller appends the bytes of ``group``, as they are. All tables stay at their places: a field becomes another one
    by a new vtable.

    Args:
        model: The flatbuffer.
        group: The only group of external buffers that there is.
        size: The group's bytes; None if there are none.

    Returns:
        None if it has no such tensor.

    Raises:
        ModelError: A range is outside of the group, there is another group, or the model is damaged.
    """
    try:
        file = tflite.Model.GetRootAs(model, 0)
        tensors = [
            tensor
            for subgraph in map(file.Subgraphs, _indices(model, file.SubgraphsLength()))
            for tensor in map(subgraph.Tensors, _indices(model, subgraph.TensorsLength()))
            if external_buffer(tensor)
        ]
    except (*_DAMAGE, ModelError):
        return None  # the reader says what is wrong
    try:
        return _Moved(model, file, group, size).with_tensors(tensors) if tensors else None
    except _DAMAGE as failure:
        raise ModelError(
            f"the model is damaged: an offset or length in its {len(model)} bytes points to a wrong place "
            f"({type(failure).__name__}: {failure})"
        ) from failure


class _Moved:
    def __init__(self, model: bytes, file: Any, group: str, size: int | None) -> None:
        self.model, self.file, self.group, self.size = model, file, group, size
        self.data = bytearray(model)
        self.vtables: dict[bytes, int] = {}

    def with_tensors(self, tensors: list[Any]) -> bytes:
        ranges = dict(self._ranges())
        order = {number: n for n, number in enumerate(dict.fromkeys(map(external_buffer, tensors)))}
        if unknown := [number for number in order if number not in ranges]:
            raise ModelError(f"tensors name external buffers {unknown[:8]}, and the model has {sorted(ranges)[:8]}")
        inside = list(map(self._place_of, map(self.file.Buffers, _indices(self.model, self.file.BuffersLength()))))
        inside = inside or [(0, 0)]
        for tensor in tensors:
            number = len(inside) + order[external_buffer(tensor)]
            self._rename(FlatTable.of(tensor), TENSOR_EXTERNAL, TENSOR_BUFFER, number)
        root = FlatTable.of(self.file)
        self._rename(root, MODEL_EXTERNAL, MODEL_BUFFERS, 0, dropped=(MODEL_GROUPS,))
        self._pad(8)
        vtable, vector = len(self.data), len(self.data) + 16
        self.data += _BUFFER_VTABLE.ljust(16, b"\0")
        count = len(inside) + len(order)
        tables = _aligned(vector + 4 + 4 * count, 8)
        begin = _aligned(tables + 24 * count, ALIGNMENT)
        outside = [(begin + ranges[number][0], ranges[number][1]) for number in order]
        places = range(tables, tables + 24 * count, 24)
        self.data += struct.pack(f"<{1 + count}I", count, *(p - vector - 4 - 4 * n for n, p in enumerate(places)))
        for place, (offset, length) in zip(places, [*inside, *outside], strict=True):
            self.data.extend(bytes(place - len(self.data)))
            self.data += struct.pack("<iIQQ", place - vtable, 0, offset, length)
        self.data.extend(bytes(begin - len(self.data)))
        field = _present(root, MODEL_EXTERNAL)
        struct.pack_into("<I", self.data, field, vector - field)
        return bytes(self.data)

    def _ranges(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Return offset and length in the group's bytes for the id of each external buffer."""
        root = FlatTable.of(self.file)
        names = [table.text(GROUP_NAME) for table in root.tables(MODEL_GROUPS)]
        for table in root.tables(MODEL_EXTERNAL):
            number, group = (table.number(field, "I") for field in (ID, GROUP))
            offset, length = (table.number(field, "Q") for field in (OFFSET, LENGTH))
            what = f"external buffer {number}"
            if group >= len(names):
                raise ModelError(f"{what} of the model is of group {group}, and there are {len(names)}")
            if names[group] != self.group or self.size is None:
                raise ModelError(
                    f"{what} of the model is in the group {names[group]!r}, which is not in the file; "
                    + ("it has no weights" if self.size is None else f"it has {self.group!r}")
                )
            if offset + length > self.size:
                raise ModelError(
                    f"{what} of the model lies in bytes {offset} to {offset + length} of {self.group!r}, which has "
                    f"{self.size}; is the file complete?"
                )
            packing = table.text(PACKING)
            if packing not in PLAIN_PACKINGS:
                raise ModelError(f"{what} of the model has the packing {packing!r}, which cannot be read")
            yield number, (offset, length)

    def _place_of(self, buffer: Any) -> tuple[int, int]:
        """Where in the file the bytes of a table Buffer lie, wherever that is."""
        if size := buffer.DataLength():
            return int(buffer._tab.Vector(buffer._tab.Offset(4))), size
        return (buffer.Offset(), buffer.Size()) if buffer.Offset() > LAST_PLACEHOLDER else (0, 0)

    def _rename(self, table: FlatTable, old: int, new: int, value: int, dropped: tuple[int, ...] = ()) -> None:
        """Make the field ``old`` of a table, of 32 bits, the field ``new``, with ``value``."""
        place, field = table.place - struct.unpack_from("<i", self.model, table.place)[0], _present(table, old)
        size = struct.unpack_from("<H", self.model, place)[0]
        vtable = bytearray(self.model[place : place + size])
        struct.pack_into("<I", self.data, field, value)
        struct.pack_into("<H", vtable, 4 + 2 * new, field - table.place)
        for absent in (old, *dropped):
            struct.pack_into("<H", vtable, 4 + 2 * absent, 0)
        key = bytes(vtable)
        if key not in self.vtables:
            self._pad(2)
            self.vtables[key] = len(self.data)
            self.data += vtable
        struct.pack_into("<i", self.data, table.place, table.place - self.vtables[key])

    def _pad(self, alignment: int) -> None:
        self.data.extend(bytes(_aligned(len(self.data), alignment) - len(self.data)))


def _indices(model: bytes, length: int) -> range:
    """Yield the indices of a vector of tables."""
    if length * 4 > len(model):
        raise ModelError(f"the model is damaged: a vector claims {length} tables, more than the file can hold")
    return range(length)


def _present(table: FlatTable, field: int) -> int:
    """Return the place of a field that is not absent."""
    place = table.field(field)
    assert place is not None
    return place


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


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


def densified(subgraph: Subgraph) -> Subgraph:
    """Return the subgraph, in which the result of each DENSIFY of a constant is that constant, by the result's own
    scales."""
    tensors, dense = [*subgraph.tensors], False
    for operator in subgraph.operators:
        if operator.code != "DENSIFY" or len(operator.inputs) != 1 or len(operator.outputs) != 1:
            continue
        source, result = (tensors[t] for t in (*operator.inputs, *operator.outputs))
        same = (source.shape, source.dtype) == (result.shape, result.dtype)
        if source.data is not None and same and not result.is_variable:
            tensors[result.index], dense = replace(result, data=source.data), True
    return replace(subgraph, tensors=tuple(tensors)) if dense else subgraph
