"""Writes the tables of a .tflite file through the builder functions that flatc generated for ``tflite``.

Every function that writes a table or a vector returns its offset in the builder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tflite

from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer_options import BUILTINS, enumerators, write_options

_BUFFER_ALIGNMENT = 16  # bytes, the schema's force_align: readers load constants from the file with vector instructions

_GREATER_OP_CODES = tflite.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES  # for the old 8-bit field

_FIRST_UNION = enumerators(tflite.BuiltinOptions)

_SECOND_UNION = enumerators(tflite.BuiltinOptions2)  # the first union is full, so newer tables are here


@dataclass(frozen=True, slots=True)
class TensorTable:
    """dtype: of the schema's TensorType. buffer: index of the file's buffer, 0 for a tensor without data."""

    name: str
    shape: tuple[int, ...]
    dtype: int
    buffer: int
    quantization: Quantization | None
    shape_signature: tuple[int, ...] | None
    is_variable: bool


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """opcode: index of the file's operator codes. table: name of the option table, None for a custom operator."""

    opcode: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: str | None
    options: dict[str, Any]
    custom_options: bytes
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SubgraphTable:
    """A subgraph, as it is written to a file."""

    name: str
    tensors: Sequence[TensorTable]
    operators: Sequence[OperatorTable]
    inputs: Sequence[int]
    outputs: Sequence[int]


class OperatorCode(NamedTuple):
    """name: a BuiltinOperator of the schema, or the name of a custom operator."""

    name: str
    version: int


def offset_vector(builder: Any, offsets: Sequence[int]) -> int:
    """Write a vector of offsets, and return its own offset.

    Args:
        builder: Of the package flatbuffers.
        offsets: Those of tables or texts.
    """
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):  # a flatbuffer grows from its end
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def int32_vector(builder: Any, values: Iterable[int]) -> int:
    """Write a vector of integers of 32 bits, and return its offset.

    Args:
        builder: Of the package flatbuffers.
        values: The integers.
    """
    return int(builder.CreateNumpyVector(np.fromiter(values, "<i4")))


def write_buffer(builder: Any, data: bytes) -> int:
    """Write a buffer of aligned bytes, and return its offset.

    Args:
        builder: Of the package flatbuffers.
        data: The bytes; none for the empty buffer.
    """
    data_offset = None
    if data:
        # CreateByteVector and CreateNumpyVector align to one element; StartVector takes any alignment.
        builder.StartVector(1, len(data), _BUFFER_ALIGNMENT)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        data_offset = builder.EndVector()
    tflite.BufferStart(builder)
    if data_offset is not None:
        tflite.BufferAddData(builder, data_offset)
    return int(tflite.BufferEnd(builder))


def write_operator_code(builder: Any, opcode: OperatorCode) -> int:
    """Write the code of a builtin or custom operator, and return its offset.

    Args:
        builder: Of the package flatbuffers.
        opcode: The operator's name and version.
    """
    builtin = BUILTINS.get(opcode.name, tflite.BuiltinOperator.CUSTOM)
    custom_code = None if opcode.name in BUILTINS else builder.CreateString(opcode.name)
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(builtin, _GREATER_OP_CODES))
    if custom_code is not None:
        tflite.OperatorCodeAddCustomCode(builder, custom_code)
    tflite.OperatorCodeAddVersion(builder, opcode.version)
    tflite.OperatorCodeAddBuiltinCode(builder, builtin)
    return int(tflite.OperatorCodeEnd(builder))


def _write_quantization(builder: Any, quantization: Quantization) -> int:
    scale = builder.CreateNumpyVector(np.asarray(quantization.scale, "<f4"))
    zero_point = builder.CreateNumpyVector(np.asarray(quantization.zero_point, "<i8"))
    tflite.QuantizationParametersStart(builder)
    tflite.QuantizationParametersAddScale(builder, scale)
    tflite.QuantizationParametersAddZeroPoint(builder, zero_point)
    tflite.QuantizationParametersAddQuantizedDimension(builder, quantization.axis)
    return int(tflite.QuantizationParametersEnd(builder))


def _write_tensor(builder: Any, tensor: TensorTable) -> int:
    shape = int32_vector(builder, tensor.shape)
    signature = None if tensor.shape_signature is None else int32_vector(builder, tensor.shape_signature)
    quantization = None if tensor.quantization is None else _write_quantization(builder, tensor.quantization)
    name = builder.CreateString(tensor.name)
    tflite.TensorStart(builder)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddType(builder, tensor.dtype)
    tflite.TensorAddBuffer(builder, tensor.buffer)
    tflite.TensorAddName(builder, name)
    tflite.TensorAddIsVariable(builder, tensor.is_variable)
    tflite.TensorAddHasRank(builder, True)
    if signature is not None:
        tflite.TensorAddShapeSignature(builder, signature)
    if quantization is not None:
        tflite.TensorAddQuantization(builder, quantization)
    return int(tflite.TensorEnd(builder))


def write_subgraph(builder: Any, graph: SubgraphTable) -> int:
    """Write a subgraph with its tensors and operators, and return its offset.

    Args:
        builder: Of the package flatbuffers.
        graph: The subgraph.
    """
    tensors = offset_vector(builder, [_write_tensor(builder, tensor) for tensor in graph.tensors])
    operators = offset_vector(builder, [_write_operator(builder, op) for op in graph.operators])
    input_indices = int32_vector(builder, graph.inputs)
    output_indices = int32_vector(builder, graph.outputs)
    name = builder.CreateString(graph.name)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensors)
    tflite.SubGraphAddInputs(builder, input_indices)
    tflite.SubGraphAddOutputs(builder, output_indices)
    tflite.SubGraphAddOperators(builder, operators)
    tflite.SubGraphAddName(builder, name)
    return int(tflite.SubGraphEnd(builder))


def _write_operator(builder: Any, op: OperatorTable) -> int:
    inputs = int32_vector(builder, op.inputs)
    outputs = int32_vector(builder, op.outputs)
    intermediates = int32_vector(builder, op.intermediates) if op.intermediates else None
    options = None if op.table is None else write_options(builder, op.table, op.options)
    custom_options = builder.CreateByteVector(op.custom_options) if op.custom_options else None
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, op.opcode)
    tflite.OperatorAddInputs(builder, inputs)
    tflite.OperatorAddOutputs(builder, outputs)
    if intermediates is not None:
        tflite.OperatorAddIntermediates(builder, intermediates)
    if op.table in _FIRST_UNION:
        tflite.OperatorAddBuiltinOptionsType(builder, _FIRST_UNION[op.table])
        tflite.OperatorAddBuiltinOptions(builder, options)
    elif op.table is not None:
        tflite.OperatorAddBuiltinOptions2Type(builder, _SECOND_UNION[op.table])
        tflite.OperatorAddBuiltinOptions2(builder, options)
    if custom_options is not None:
        tflite.OperatorAddCustomOptions(builder, custom_options)
    return int(tflite.OperatorEnd(builder))
