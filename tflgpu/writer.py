"""Write TensorFlow Lite models tensor by tensor, operator by operator.

The file layout is version 3 of TensorFlow Lite's public schema (``compiler/mlir/lite/schema/schema.fbs``),
reached through the builder functions that flatc generated into the PyPI package ``tflite``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
import tflite
from numpy.typing import ArrayLike

from tflgpu.writer_options import BUILTINS, checked_options, enumerators, options_table, write_options

_SCHEMA_VERSION = 3
_FILE_IDENTIFIER = b"TFL3"
_BUFFER_ALIGNMENT = 16  # the schema's force_align: readers use constants in place, with vector loads
_GREATER_OP_CODES = tflite.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES  # fills the old 8-bit code field
_ABSENT = -1  # the schema's index for an optional input that is not given
_TENSOR_TYPES = enumerators(tflite.TensorType)
_FIRST_UNION = enumerators(tflite.BuiltinOptions)
_SECOND_UNION = enumerators(tflite.BuiltinOptions2)  # the first is full: newer tables went here


@dataclass(frozen=True)
class Quantization:
    """Affine quantization ``real = scale * (q - zero_point)``.

    There is one (scale, zero point) pair for the tensor, or one per index along dimension ``axis``.

    Raises:
        ValueError: ``scale`` is empty or its length is not that of ``zero_point``.
    """

    scale: Sequence[float]
    zero_point: Sequence[int]
    axis: int = 0

    def __post_init__(self) -> None:
        if len(self.scale) == 0 or len(self.scale) != len(self.zero_point):
            raise ValueError(f"{len(self.scale)} scales and {len(self.zero_point)} zero points: they come in pairs")


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: int
    buffer: int
    quantization: Quantization | None
    shape_signature: tuple[int, ...] | None
    is_variable: bool


@dataclass(frozen=True, slots=True)
class _Operator:
    opcode: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: str | None
    options: dict[str, Any]
    custom_options: bytes


@dataclass(frozen=True, slots=True)
class _Subgraph:
    name: str
    tensors: Sequence[_Tensor]
    operators: Sequence[_Operator]
    inputs: Sequence[int]
    outputs: Sequence[int]


class _OperatorCode(NamedTuple):
    name: str
    version: int


class ModelBuilder:
    """Writes a .tflite file, tensor by tensor.

    Methods that make a tensor return its index, which is how operators name it. They make the main subgraph;
    :meth:`subgraph` adds others, which operators call.
    """

    def __init__(self, description: str = "") -> None:
        self._description = description
        self._tensors: list[_Tensor] = []
        self._buffers: list[bytes] = [b""]  # buffer 0 is empty by convention: every activation points to it
        self._opcodes: dict[_OperatorCode, int] = {}
        self._operators: list[_Operator] = []
        self._inputs: list[int] = []
        self._called: list[_Subgraph] = []

    def input(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        name: str | None = None,
        quantization: Quantization | None = None,
        shape_signature: Sequence[int] | None = None,
    ) -> int:
        """Add a model input of ``shape``; ``shape_signature`` repeats the shape with -1 where it may vary.

        Raises:
            ValueError: unknown ``dtype``, negative dimension, or a signature of another rank.
        """
        if shape_signature is not None and len(shape_signature) != len(shape):
            raise ValueError(f"shape_signature {shape_signature} has not the rank of shape {shape}")
        index = self._add_tensor(
            "input", name, shape, dtype, quantization=quantization, shape_signature=shape_signature
        )
        self._inputs.append(index)
        return index

    def constant(self, array: ArrayLike, *, name: str | None = None, quantization: Quantization | None = None) -> int:
        """Add a tensor with the values, shape and dtype of ``array`` (copied).

        Raises:
            ValueError: the schema has no tensor type for the array's dtype.
        """
        values = np.asarray(array)
        little_endian = values.astype(values.dtype.newbyteorder("<"), copy=False)
        buffer = len(self._buffers)
        dtype = values.dtype.name
        index = self._add_tensor("constant", name, values.shape, dtype, buffer=buffer, quantization=quantization)
        self._buffers.append(little_endian.tobytes())
        return index

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        name: str | None = None,
        quantization: Quantization | None = None,
        is_variable: bool = False,
    ) -> int:
        """Add an activation, or with ``is_variable`` a state tensor that keeps its value between calls.

        Raises:
            ValueError: unknown ``dtype`` or negative dimension.
        """
        return self._add_tensor("tensor", name, shape, dtype, quantization=quantization, is_variable=is_variable)

    def op(
        self,
        code: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Mapping[str, object] | None = None,
        *,
        version: int = 1,
        custom_options: bytes = b"",
    ) -> None:
        """Append operator ``code``: a BuiltinOperator name, or any other name for a custom operator.

        ``inputs`` and ``outputs`` are tensor indices, -1 for an optional input that is absent. ``options``
        are schema field names in snake_case; an enum is given by name or value, a field that is left out has
        the schema's default. The option table is written even if empty, as TensorFlow's converter does.

        Raises:
            ValueError: unknown option, value that does not fit, tensor index out of range, or
                ``custom_options`` on a builtin operator.
        """
        builtin = code in BUILTINS
        if builtin and custom_options:
            raise ValueError(f"{code} is a builtin operator: custom_options are for custom operators")
        for index in inputs:
            if index != _ABSENT:
                self._check_tensor(index, f"{code} input")
        for index in outputs:
            self._check_tensor(index, f"{code} output")
        values = checked_options(code, options or {})
        self._operators.append(
            _Operator(
                opcode=self._opcodes.setdefault(_OperatorCode(code, version), len(self._opcodes)),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                table=options_table(code) if builtin else None,
                options=values,
                custom_options=custom_options,
            )
        )

    def subgraph(self, other: ModelBuilder, outputs: Sequence[int] = ()) -> int:
        """Add what ``other`` has built as one more subgraph. Returns its index, by which operators call it.

        Raises:
            ValueError: ``other`` has no such output, or subgraphs of its own.
        """
        if other._called:
            raise ValueError("a subgraph cannot have subgraphs: add them to the model")
        for index in outputs:
            other._check_tensor(index, "subgraph output")
        shift = len(self._buffers) - 1  # both have an empty buffer 0
        self._buffers += other._buffers[1:]
        codes = [self._opcodes.setdefault(code, len(self._opcodes)) for code in other._opcodes]
        number = len(self._called) + 1
        self._called.append(
            _Subgraph(
                f"subgraph_{number}",
                [replace(t, buffer=t.buffer + shift if t.buffer else 0) for t in other._tensors],
                [replace(o, opcode=codes[o.opcode]) for o in other._operators],
                other._inputs,
                outputs,
            )
        )
        return number

    def finish(self, outputs: Sequence[int], *, signature: str | None = None) -> bytes:
        """The model file; ``signature`` is the key of a signature over all inputs and these outputs.

        Raises:
            ValueError: an output index is out of range, or two tensors of the signature share a name.
        """
        for index in outputs:
            self._check_tensor(index, "model output")
        builder = flatbuffers.Builder(sum(map(len, self._buffers)) + 1024 * (1 + len(self._tensors)))
        buffers = _offset_vector(builder, [_write_buffer(builder, data) for data in self._buffers])
        main = _Subgraph("main", self._tensors, self._operators, self._inputs, outputs)
        subgraphs = _offset_vector(builder, [_write_subgraph(builder, graph) for graph in (main, *self._called)])
        opcodes = _offset_vector(builder, [_write_opcode(builder, opcode) for opcode in self._opcodes])
        signatures = [] if signature is None else [self._write_signature(builder, signature, outputs)]
        signature_defs = _offset_vector(builder, signatures)
        description = builder.CreateString(self._description)
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, _SCHEMA_VERSION)
        tflite.ModelAddOperatorCodes(builder, opcodes)
        tflite.ModelAddSubgraphs(builder, subgraphs)
        tflite.ModelAddDescription(builder, description)
        tflite.ModelAddBuffers(builder, buffers)
        tflite.ModelAddSignatureDefs(builder, signature_defs)
        builder.Finish(tflite.ModelEnd(builder), file_identifier=_FILE_IDENTIFIER)
        return bytes(builder.Output())

    def _add_tensor(
        self,
        kind: str,
        name: str | None,
        shape: Sequence[int],
        dtype: str,
        *,
        buffer: int = 0,
        quantization: Quantization | None,
        shape_signature: Sequence[int] | None = None,
        is_variable: bool = False,
    ) -> int:
        index = len(self._tensors)
        name = f"{kind}_{index}" if name is None else name
        dims = tuple(map(operator.index, shape))
        if any(dim < 0 for dim in dims):
            raise ValueError(f"tensor {name!r} has a negative dimension: {dims}")
        if (type_name := str(dtype).upper()) not in _TENSOR_TYPES:
            known = ", ".join(_TENSOR_TYPES).lower()
            raise ValueError(f"tensor {name!r}: no tensor type {dtype!r}; known types: {known}")
        signature = None if shape_signature is None else tuple(map(operator.index, shape_signature))
        self._tensors.append(
            _Tensor(name, dims, _TENSOR_TYPES[type_name], buffer, quantization, signature, is_variable)
        )
        return index

    def _check_tensor(self, index: int, role: str) -> None:
        if not 0 <= index < len(self._tensors):
            raise ValueError(f"{role}: no tensor {index}; the model has {len(self._tensors)}")

    def _write_signature(self, builder: Any, key: str, outputs: Sequence[int]) -> int:
        input_maps = self._write_tensor_maps(builder, self._inputs)
        output_maps = self._write_tensor_maps(builder, outputs)
        key_offset = builder.CreateString(key)
        tflite.SignatureDefStart(builder)
        tflite.SignatureDefAddInputs(builder, input_maps)
        tflite.SignatureDefAddOutputs(builder, output_maps)
        tflite.SignatureDefAddSignatureKey(builder, key_offset)
        tflite.SignatureDefAddSubgraphIndex(builder, 0)
        return int(tflite.SignatureDefEnd(builder))

    def _write_tensor_maps(self, builder: Any, indices: Sequence[int]) -> int:
        """The (name, tensor index) pairs of one side of a signature."""
        names = [self._tensors[index].name for index in indices]
        if len(set(names)) != len(names):
            raise ValueError(f"a signature needs distinct tensor names, not {names}")
        maps = []
        for name, index in zip(names, indices, strict=True):
            name_offset = builder.CreateString(name)
            tflite.TensorMapStart(builder)
            tflite.TensorMapAddName(builder, name_offset)
            tflite.TensorMapAddTensorIndex(builder, index)
            maps.append(tflite.TensorMapEnd(builder))
        return _offset_vector(builder, maps)


def _offset_vector(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):  # flatbuffers grow from the end
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _int32_vector(builder: Any, values: Iterable[int]) -> int:
    return int(builder.CreateNumpyVector(np.fromiter(values, "<i4")))


def _write_buffer(builder: Any, data: bytes) -> int:
    data_offset = None
    if data:
        # CreateByteVector and CreateNumpyVector align to the element; an open vector takes any alignment.
        builder.StartVector(1, len(data), _BUFFER_ALIGNMENT)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        data_offset = builder.EndVector()
    tflite.BufferStart(builder)
    if data_offset is not None:
        tflite.BufferAddData(builder, data_offset)
    return int(tflite.BufferEnd(builder))


def _write_opcode(builder: Any, opcode: _OperatorCode) -> int:
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


def _write_tensor(builder: Any, tensor: _Tensor) -> int:
    shape = _int32_vector(builder, tensor.shape)
    signature = None if tensor.shape_signature is None else _int32_vector(builder, tensor.shape_signature)
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


def _write_subgraph(builder: Any, graph: _Subgraph) -> int:
    tensors = _offset_vector(builder, [_write_tensor(builder, tensor) for tensor in graph.tensors])
    operators = _offset_vector(builder, [_write_operator(builder, op) for op in graph.operators])
    input_indices = _int32_vector(builder, graph.inputs)
    output_indices = _int32_vector(builder, graph.outputs)
    name = builder.CreateString(graph.name)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensors)
    tflite.SubGraphAddInputs(builder, input_indices)
    tflite.SubGraphAddOutputs(builder, output_indices)
    tflite.SubGraphAddOperators(builder, operators)
    tflite.SubGraphAddName(builder, name)
    return int(tflite.SubGraphEnd(builder))


def _write_operator(builder: Any, op: _Operator) -> int:
    inputs = _int32_vector(builder, op.inputs)
    outputs = _int32_vector(builder, op.outputs)
    options = None if op.table is None else write_options(builder, op.table, op.options)
    custom_options = builder.CreateByteVector(op.custom_options) if op.custom_options else None
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, op.opcode)
    tflite.OperatorAddInputs(builder, inputs)
    tflite.OperatorAddOutputs(builder, outputs)
    if op.table in _FIRST_UNION:
        tflite.OperatorAddBuiltinOptionsType(builder, _FIRST_UNION[op.table])
        tflite.OperatorAddBuiltinOptions(builder, options)
    elif op.table is not None:
        tflite.OperatorAddBuiltinOptions2Type(builder, _SECOND_UNION[op.table])
        tflite.OperatorAddBuiltinOptions2(builder, options)
    if custom_options is not None:
        tflite.OperatorAddCustomOptions(builder, custom_options)
    return int(tflite.OperatorEnd(builder))
