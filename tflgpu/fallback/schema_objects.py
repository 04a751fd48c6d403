"""A .tflite file as objects of LiteRT's schema, and changes of them: weights in float, variables.

LiteRT's kernels quantize the activations that integers multiply, and are off by up to a percent for that. Weights in
float are for runs of LiteRT that others are judged by.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.fallback.litert_interpreter import ZEROS
from tflgpu.model.flat_table import Bytes, stored_bytes
from tflgpu.model.model import NUMPY_TYPES
from tflgpu.model.quantization import dequantized, is_quantized

if TYPE_CHECKING:
    from tflgpu.model.model import FileTensor, Subgraph, VariableUse


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


def with_float_weights(data: bytes, subgraph: Subgraph) -> bytes:
    """Return a file with floats in place of the quantized constants that operators on floats read.

    Args:
        data: The file.
        subgraph: Its main subgraph.

    Raises:
        ModelError: LiteRT's schema does not know a part of the file.
    """
    from ai_edge_litert import schema_py_generated as schema  # an extra of the package

    weights = _weights(subgraph)
    if not weights:
        return data
    file = unpacked(data)
    for number in sorted(weights):
        tensor = file.subgraphs[0].tensors[number]
        tensor.type, tensor.quantization, tensor.sparsity = schema.TensorType.FLOAT32, None, None
        tensor.buffer = len(file.buffers)
        file.buffers.append(schema.BufferT(data=dequantized(subgraph.tensors[number]).view("uint8").reshape(-1)))
    return packed(file)


def _weights(subgraph: Subgraph) -> set[int]:
    """Return the quantized constants whose readers give floats; DEQUANTIZE takes no others."""
    constants = {t.index for t in subgraph.tensors if t.data is not None and is_quantized(t) and "int32" not in t.dtype}
    found, others = set[int](), set[int]()
    for operator in subgraph.operators:
        gives_floats = all(subgraph.tensors[t].dtype == "float32" for t in operator.outputs if t >= 0)
        side = found if gives_floats and operator.code != "DEQUANTIZE" else others
        side.update(constants.intersection(operator.inputs))
    return found - others - set(subgraph.outputs)


LARGEST_OLD_CODE = 127  # of the field of one byte that later codes leave at this


class VariableOperators:
    """Makes operators and tensors of a subgraph."""

    def __init__(self, model: Any, subgraph: Any) -> None:
        """Note where they will be.

        Args:
            model: A ``ModelT``; its operator codes and buffers become more.
            subgraph: A ``SubGraphT`` of it, whose tensors become more.
        """
        from ai_edge_litert import schema_py_generated as schema  # an extra of the package

        self._schema, self._model, self._subgraph = schema, model, subgraph

    def value(self, value: FileTensor) -> Any:
        """Return a new ``TensorT``, which is in no subgraph yet.

        Args:
            value: Its form, and its elements if it is a constant.
        """
        tensor = self._schema.TensorT()
        tensor.name, tensor.type = value.name, getattr(self._schema.TensorType, value.dtype.upper())
        tensor.shape, tensor.buffer = list(value.shape), 0
        tensor.shapeSignature = list(value.signature) if -1 in value.signature else None
        if value.quantization is not None:
            tensor.quantization = self._schema.QuantizationParametersT()
            tensor.quantization.scale = list(value.quantization.scale)
            tensor.quantization.zeroPoint = list(value.quantization.zero_point)
        if value.data is not None:
            self.fill(tensor, np.frombuffer(value.data.tobytes(), np.uint8))
        return tensor

    def fill(self, tensor: Any, data: Any) -> None:
        """Make a tensor a constant.

        Args:
            tensor: A ``TensorT`` of the model.
            data: An array of bytes.
        """
        tensor.buffer = len(self._model.buffers)
        self._model.buffers.append(self._schema.BufferT(data=data))

    def assignment(self, key: str, value: int) -> list[Any]:
        """Return the operators that assign a variable.

        Args:
            key: The variable's.
            value: A tensor, by its number in the subgraph.
        """
        handle = self._new_handle()
        return [self.handle(key, handle), self._operator("ASSIGN_VARIABLE", [handle, value], [])]

    def reading(self, key: str, value: int) -> list[Any]:
        """Return the operators that read a variable.

        Args:
            key: The variable's.
            value: The tensor that gets the value, by its number in the subgraph.
        """
        handle = self._new_handle()
        return [self.handle(key, handle), self._operator("READ_VARIABLE", [handle], [value])]

    def handle(self, key: str, tensor: int) -> Any:
        """Return the VAR_HANDLE of a variable.

        Args:
            key: The variable's.
            tensor: The tensor that gets the handle, by its number in the subgraph.
        """
        operator = self._operator("VAR_HANDLE", [], [tensor])
        operator.builtinOptionsType = self._schema.BuiltinOptions.VarHandleOptions
        options = operator.builtinOptions = self._schema.VarHandleOptionsT()
        options.container, options.sharedName = (part.encode("latin-1") for part in key.split("\0", 1))
        return operator

    def _new_handle(self) -> int:
        tensor = self._schema.TensorT()
        tensor.name, tensor.type, tensor.shape, tensor.buffer = "", self._schema.TensorType.RESOURCE, [], 0
        self._subgraph.tensors.append(tensor)
        return len(self._subgraph.tensors) - 1

    def _operator(self, code: str, inputs: list[int], outputs: list[int]) -> Any:
        number = getattr(self._schema.BuiltinOperator, code)
        codes = self._model.operatorCodes
        place = next((i for i, known in enumerate(codes) if known.builtinCode == number), len(codes))
        if place == len(codes):
            added = self._schema.OperatorCodeT()
            added.builtinCode, added.version = number, 1
            added.deprecatedBuiltinCode = min(number, LARGEST_OLD_CODE)
            codes.append(added)
        operator = self._schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = place, inputs, outputs
        return operator


def with_zeros(data: bytes, variables: Sequence[VariableUse]) -> bytes:
    """Return a file with one more signature, which assigns zeros to variables.

    LiteRT refuses to read a variable that was never assigned. :class:`FileInterpreter` runs the signature first.

    Args:
        data: The file.
        variables: Those to assign; without any the file is returned.
    """
    if not variables:
        return data
    from ai_edge_litert import schema_py_generated as schema  # an extra of the package

    file = unpacked(data)
    main = schema.SubGraphT(name=ZEROS, tensors=[], inputs=[], outputs=[], operators=[])
    writer = VariableOperators(file, main)
    for use in variables:
        zeros = np.zeros(use.form.shape, NUMPY_TYPES[use.form.dtype])
        main.tensors.append(writer.value(replace(use.form, data=zeros)))
        main.operators += writer.assignment(use.key, len(main.tensors) - 1)
    signature = schema.SignatureDefT(signatureKey=ZEROS, inputs=[], outputs=[], subgraphIndex=len(file.subgraphs))
    file.subgraphs.append(main)
    file.signatureDefs = [*(file.signatureDefs or ()), signature]
    return packed(file)
