"""Write operators on resource variables into a file for LiteRT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tflgpu.fallback.litert_interpreter import ZEROS
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.model import NUMPY_TYPES

if TYPE_CHECKING:  # a warm start does without
    from tflgpu.model.model import FileTensor, VariableUse

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
