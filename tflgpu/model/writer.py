"""Writes TensorFlow Lite models tensor by tensor, operator by operator.

Every function that writes a table or a vector returns its offset in the builder.

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

from tflgpu.model.operator_options import BUILTINS, checked_options, enumerators, options_table, write_options
from tflgpu.model.tensor_info import Quantization

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


_SCHEMA_VERSION = 3

_FILE_IDENTIFIER = b"TFL3"

_ABSENT = -1  # the schema's index for an optional input that is not given

_TENSOR_TYPES = enumerators(tflite.TensorType)


class ModelBuilder:
    """Writes a .tflite file, tensor by tensor.

    A method that makes a tensor returns its index, by which operators refer to it. The methods build the main subgraph;
    :meth:`subgraph` adds others, which operators call.
    """

    def __init__(self, description: str = "") -> None:
        self._description = description
        self._tensors: list[TensorTable] = []
        self._buffers: list[bytes] = [b""]  # buffer 0 is empty by convention; every activation refers to it
        self._opcodes: dict[OperatorCode, int] = {}
        self._operators: list[OperatorTable] = []
        self._inputs: list[int] = []
        self._called: list[SubgraphTable] = []
        self._signatures: dict[int, str] = {}  # keys of called subgraphs

    def input(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        name: str | None = None,
        quantization: Quantization | None = None,
        shape_signature: Sequence[int] | None = None,
    ) -> int:
        """Add a model input, and return its index.

        Args:
            shape: Its sizes.
            dtype: Numpy's name of its element type.
            name: None for one that is made up.
            quantization: None for a tensor that is not quantized.
            shape_signature: The shape with -1 where it may vary; None for a shape that is fixed.

        Raises:
            ValueError: The element type is unknown, a dimension is negative, or the signature has another rank.
        """
        index = self._add_tensor(
            "input", name, shape, dtype, quantization=quantization, shape_signature=shape_signature
        )
        self._inputs.append(index)
        return index

    def constant(self, array: ArrayLike, *, name: str | None = None, quantization: Quantization | None = None) -> int:
        """Add a constant, and return its index.

        Args:
            array: Its values, which are copied, shape and element type.
            name: None for one that is made up.
            quantization: None for a tensor that is not quantized.

        Raises:
            ValueError: The schema has no such element type.
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
        shape_signature: Sequence[int] | None = None,
    ) -> int:
        """Add an activation or a variable, and return its index.

        Args:
            shape: Its sizes.
            dtype: Numpy's name of its element type.
            name: None for one that is made up.
            quantization: None for a tensor that is not quantized.
            is_variable: Whether it keeps its value between calls.
            shape_signature: The shape with -1 where it is known only at run time; None for a shape that is fixed.

        Raises:
            ValueError: The element type is unknown, a dimension is negative, or the signature has another rank.
        """
        return self._add_tensor(
            "tensor",
            name,
            shape,
            dtype,
            quantization=quantization,
            shape_signature=shape_signature,
            is_variable=is_variable,
        )

    def op(
        self,
        code: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Mapping[str, object] | None = None,
        *,
        version: int = 1,
        custom_options: bytes = b"",
        intermediates: Sequence[int] = (),
    ) -> None:
        """Append an operator. The option table is written even if empty, as TensorFlow's converter does.

        Args:
            code: A BuiltinOperator name, or any other name for a custom operator.
            inputs: Tensor indices, -1 for an optional input that is absent.
            outputs: Tensor indices.
            options: Schema field names in snake_case; an enum is given by name or value, a field that is left out has
                the
                schema's default.
            version: The operator's.
            custom_options: The bytes of a custom operator's options.
            intermediates: Tensor indices, whose scales an LSTM of integers needs.

        Raises:
            ValueError: An option is unknown or does not fit, a tensor index is out of range, or a builtin operator has
                ``custom_options``.
        """
        builtin = code in BUILTINS
        if builtin and custom_options:
            raise ValueError(f"{code} is a builtin operator: custom_options are for custom operators")
        for index in inputs:
            if index != _ABSENT:
                self._check_tensor(index, f"{code} input")
        for index in (*outputs, *intermediates):
            self._check_tensor(index, f"{code} output")
        values = checked_options(code, options or {})
        self._operators.append(
            OperatorTable(
                opcode=self._opcodes.setdefault(OperatorCode(code, version), len(self._opcodes)),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                table=options_table(code) if builtin else None,
                options=values,
                custom_options=custom_options,
                intermediates=tuple(intermediates),
            )
        )

    def subgraph(self, other: ModelBuilder, outputs: Sequence[int] = (), *, signature: str | None = None) -> int:
        """Add what another builder has built as one more subgraph. Returns its index, by which operators call it.

        Args:
            other: Has inputs, tensors and operators, and no subgraphs.
            outputs: Tensor indices of the other builder.
            signature: The key of a signature over all of its inputs and these outputs; None for no signature.

        Raises:
            ValueError: The other builder has no such output, or subgraphs of its own.
        """
        if other._called:
            raise ValueError("a subgraph cannot have subgraphs: add them to the model")
        for index in outputs:
            other._check_tensor(index, "subgraph output")
        shift = len(self._buffers) - 1  # both have an empty buffer 0
        self._buffers += other._buffers[1:]
        codes = [self._opcodes.setdefault(code, len(self._opcodes)) for code in other._opcodes]
        number = len(self._called) + 1
        if signature is not None:
            self._signatures[number] = signature
        self._called.append(
            SubgraphTable(
                f"subgraph_{number}",
                [replace(t, buffer=t.buffer + shift if t.buffer else 0) for t in other._tensors],
                [replace(o, opcode=codes[o.opcode]) for o in other._operators],
                other._inputs,
                outputs,
            )
        )
        return number

    def finish(self, outputs: Sequence[int], *, signature: str | None = None) -> bytes:
        """Return the model file.

        Args:
            outputs: Tensor indices.
            signature: The key of a signature over all inputs and these outputs; None for no signature.

        Raises:
            ValueError: An output index is out of range, or two tensors of the signature share a name.
        """
        for index in outputs:
            self._check_tensor(index, "model output")
        builder = flatbuffers.Builder(sum(map(len, self._buffers)) + 1024 * (1 + len(self._tensors)))
        buffers = offset_vector(builder, [write_buffer(builder, data) for data in self._buffers])
        main = SubgraphTable("main", self._tensors, self._operators, self._inputs, outputs)
        graphs = (main, *self._called)
        subgraphs = offset_vector(builder, [write_subgraph(builder, graph) for graph in graphs])
        opcodes = offset_vector(builder, [write_operator_code(builder, opcode) for opcode in self._opcodes])
        keys = self._signatures if signature is None else {0: signature, **self._signatures}
        signatures = [_write_signature(builder, key, number, graphs[number]) for number, key in keys.items()]
        signature_defs = offset_vector(builder, signatures)
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
        if shape_signature is not None and len(shape_signature) != len(shape):
            raise ValueError(f"shape_signature {shape_signature} has not the rank of shape {shape}")
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
            TensorTable(name, dims, _TENSOR_TYPES[type_name], buffer, quantization, signature, is_variable)
        )
        return index

    def _check_tensor(self, index: int, role: str) -> None:
        if not 0 <= index < len(self._tensors):
            raise ValueError(f"{role}: no tensor {index}; the model has {len(self._tensors)}")


def _write_signature(builder: Any, key: str, number: int, graph: SubgraphTable) -> int:
    """Return a signature over all inputs and outputs of a subgraph."""
    input_maps, output_maps = (_write_tensor_maps(builder, graph, side) for side in (graph.inputs, graph.outputs))
    key_offset = builder.CreateString(key)
    tflite.SignatureDefStart(builder)
    tflite.SignatureDefAddInputs(builder, input_maps)
    tflite.SignatureDefAddOutputs(builder, output_maps)
    tflite.SignatureDefAddSignatureKey(builder, key_offset)
    tflite.SignatureDefAddSubgraphIndex(builder, number)
    return int(tflite.SignatureDefEnd(builder))


def _write_tensor_maps(builder: Any, graph: SubgraphTable, indices: Sequence[int]) -> int:
    """Return the (name, tensor index) pairs of one side of a signature."""
    names = [graph.tensors[index].name for index in indices]
    if len(set(names)) != len(names):
        raise ValueError(f"a signature needs distinct tensor names, not {names}")
    maps = []
    for name, index in zip(names, indices, strict=True):
        name_offset = builder.CreateString(name)
        tflite.TensorMapStart(builder)
        tflite.TensorMapAddName(builder, name_offset)
        tflite.TensorMapAddTensorIndex(builder, index)
        maps.append(tflite.TensorMapEnd(builder))
    return offset_vector(builder, maps)
