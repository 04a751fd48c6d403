"""Bytes of a .tflite file -> :class:`Model`. Everything that later stages rely on is checked here.

The PyPI package ``tflite`` decodes the flatbuffer; no later stage sees it. The decoder trusts offsets, so a damaged
file can make it raise almost any error. Every such error becomes a :class:`ModelError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np
import tflite
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.graph.layout import Shape
from tflgpu.model.constants import external_buffer, with_block_scales
from tflgpu.model.file_checks import (
    check_arity,
    check_calls,
    check_custom_options,
    check_element_types,
    check_grid,
    check_lstm_operands,
    check_option_values,
    check_raw,
)
from tflgpu.model.flat_table import Bytes, FlatTable, buffer_bytes, stored_bytes
from tflgpu.model.model import DTYPES, NUMPY_TYPES, Array, FileTensor, Model, Operator, Signature, Subgraph, itemsize
from tflgpu.model.model_source import described
from tflgpu.model.operator_options import read_options
from tflgpu.model.sparsity import StoredForm, densify, stored_form
from tflgpu.model.tensor_info import Quantization, SignatureInfo, TensorInfo
from tflgpu.model.text import decoded

Read = TypeVar("Read")

IDENTIFIER = b"TFL3"

WIDE_CODE = 3  # the field of 32 bits of a table OperatorCode
MAX_RANK = 8

MAX_TENSOR_BYTES = 1 << 31  # TFLite counts bytes in 32 bits with a sign

DECODER_FAILURES = (struct.error, IndexError, KeyError, TypeError, ValueError, OverflowError, AttributeError)


def read_model(data: Bytes) -> Model:
    """Decode and check a model.

    Args:
        data: The whole file; constants are views of it.

    Raises:
        ModelError: The file is damaged; the message says what is wrong and what was expected.
    """
    return _read(data, _Reader.model)


def read_signatures(data: Bytes) -> tuple[SignatureInfo, ...]:
    """Return the signatures of a file with the shapes that it declares. Nothing else is read, or checked.

    Args:
        data: The whole file.

    Raises:
        ModelError: The signatures are damaged.
    """
    return _read(data, _Reader.signatures)


def _read(data: Bytes, part: Callable[[_Reader], Read]) -> Read:
    head = bytes(data[:8])
    if len(data) == 0:
        raise ModelError("the model is empty (0 bytes); a .tflite file was expected")
    if len(data) < 8 or head[4:8] != IDENTIFIER:
        found = described(data) or f"they are {head[4:8]!r}"
        raise ModelError(f"not a TensorFlow Lite model, whose bytes 4 to 8 are {IDENTIFIER!r}: {found}")
    try:
        return part(_Reader(data))
    except DECODER_FAILURES as failure:
        raise ModelError(
            f"the model is damaged: an offset or length in its {len(data)} bytes points to a wrong place "
            f"({type(failure).__name__}: {failure}); is the file complete?"
        ) from failure


class _Reader:
    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.file = tflite.Model.GetRootAs(data, 0)

    def each(self, table: Any, name: str) -> Iterator[Any]:
        """Return the elements of a vector of tables or scalars. Raises ModelError for a length that the file cannot
        hold."""
        length = getattr(table, f"{name}Length")()
        if length * 4 > len(self.data):
            raise ModelError(
                f"the model is damaged: a vector {name} claims {length} elements, more than the file can hold"
            )
        return map(getattr(table, name), range(length))

    def model(self) -> Model:
        # Buffer 0 means "no data", also in files that leave it out.
        buffers = (buffer_bytes(self.data, i, b) for i, b in enumerate(self.each(self.file, "Buffers")))
        self.buffers = tuple(buffers) or (np.empty(0, np.uint8),)
        self.codes = tuple(self._code(c) for c in self.each(self.file, "OperatorCodes"))
        subgraphs = tuple(self._subgraph(i, s) for i, s in enumerate(self.each(self.file, "Subgraphs")))
        if not subgraphs:
            raise ModelError("the model has no subgraph, so there is nothing to run")
        check_calls(subgraphs)
        signatures = tuple(self._signature(s, subgraphs) for s in self.each(self.file, "SignatureDefs"))
        return Model(subgraphs, signatures, decoded(self.file.Description()))

    def signatures(self) -> tuple[SignatureInfo, ...]:
        return tuple(map(self._signature_info, self.each(self.file, "SignatureDefs")))

    def _signature_info(self, signature: Any) -> SignatureInfo:
        key, index = decoded(signature.SignatureKey()), signature.SubgraphIndex()
        if index >= self.file.SubgraphsLength():
            raise ModelError(
                f"signature {key!r} refers to subgraph {index}; the model has {self.file.SubgraphsLength()}"
            )
        tensors, sides = tuple(self.each(self.file.Subgraphs(index), "Tensors")), list[tuple[TensorInfo, ...]]()
        for side in ("Inputs", "Outputs"):
            named = [(decoded(m.Name()), int(m.TensorIndex())) for m in self.each(signature, side)]
            if strange := sorted(t for _, t in named if t >= len(tensors)):
                raise ModelError(f"signature {key!r} names tensors {strange}, but there are {len(tensors)} tensors")
            sides.append(tuple(_tensor_info(name, tensors[t]) for name, t in named))
        return SignatureInfo(key, *sides)

    def _code(self, code: Any) -> tuple[str, int, bool]:
        # Files before schema 3a have only the 8-bit field. Later files fill both fields, or only the wide one, for
        # which the package's accessor gives the other one where that suffices.
        number = max(FlatTable.of(code).number(WIDE_CODE, "i"), code.DeprecatedBuiltinCode())
        if number == tflite.BuiltinOperator.CUSTOM:
            return decoded(code.CustomCode()) or "CUSTOM", code.Version(), True
        name = tflite.utils.BUILTIN_OPCODE2NAME.get(number)
        if name is None:
            raise ModelError(
                f"operator code {number} is not in the schema that tflgpu reads; the file is damaged or too new"
            )
        return name, code.Version(), False

    def _subgraph(self, index: int, subgraph: Any) -> Subgraph:
        tensors = tuple(self._tensor(i, t) for i, t in enumerate(self.each(subgraph, "Tensors")))
        operators = tuple(self._operator(i, o, len(tensors)) for i, o in enumerate(self.each(subgraph, "Operators")))
        inputs = _indices(subgraph.InputsAsNumpy(), len(tensors), f"inputs of subgraph {index}")
        outputs = _indices(subgraph.OutputsAsNumpy(), len(tensors), f"outputs of subgraph {index}")
        given = frozenset(inputs)  # what the file or the run before has for an input, the caller replaces
        if len(given) != len(inputs):
            raise ModelError(f"subgraph {index} has inputs {list(inputs)}, where one tensor comes twice")
        tensors = tuple(replace(t, data=None, is_variable=False) if t.index in given else t for t in tensors)
        pairs = zip(tensors, self.each(subgraph, "Tensors"), strict=True)
        tensors = tuple(with_block_scales(t, stored, tensors) for t, stored in pairs)
        result = Subgraph(decoded(subgraph.Name()), tensors, operators, inputs, outputs)
        check_element_types(result)
        check_lstm_operands(result)
        _check_order(index, result)
        return result

    def _tensor(self, index: int, tensor: Any) -> FileTensor:
        name = decoded(tensor.Name())
        where = f"tensor {index} {name!r}"
        shape, signature, dtype = _form(where, tensor)
        if prod(shape) * itemsize(dtype) > MAX_TENSOR_BYTES:
            raise ModelError(f"{where} of shape {list(shape)} would take more than {MAX_TENSOR_BYTES} bytes")
        if tensor.IsVariable() and dtype not in NUMPY_TYPES:
            raise ModelError(f"{where} is a variable of element type {dtype}, which holds no numbers")
        if not 0 <= tensor.Buffer() < len(self.buffers):
            raise ModelError(f"{where} refers to buffer {tensor.Buffer()}; the model has {len(self.buffers)}")
        if number := external_buffer(tensor):
            raise ModelError(
                f"{where} has its values in external buffer {number}, outside of the file; open the .litertlm file "
                "that the model is of (tflgpu.language.open_language_file)"
            )
        data = self._constant(where, self.buffers[tensor.Buffer()], dtype, shape, tensor.Sparsity())
        quantization = _quantization(where, tensor.Quantization(), shape, constant=data is not None)
        if data is None:
            check_grid(where, dtype, quantization)
        return FileTensor(
            index,
            name,
            shape,
            signature,
            dtype,
            data,
            quantization,
            tensor.IsVariable(),
            self._sparse(tensor, dtype) if data is not None else None,
        )

    def _constant(self, where: str, data: NDArray[np.uint8], dtype: str, shape: Shape, sparsity: Any) -> Array | None:
        if data.size == 0:
            return None
        if dtype not in NUMPY_TYPES:
            check_raw(where, data, dtype, shape)
            return data
        if sparsity is not None:
            return densify(data.view(NUMPY_TYPES[dtype]), shape, sparsity)
        expected = prod(shape) * itemsize(dtype)
        if data.size != expected:
            raise ModelError(
                f"{where} has {data.size} bytes of data, but shape {list(shape)} of {dtype} needs {expected}"
            )
        return data.view(NUMPY_TYPES[dtype]).reshape(shape)

    def _sparse(self, tensor: Any, dtype: str) -> StoredForm | None:
        sparsity = tensor.Sparsity() if dtype in NUMPY_TYPES else None
        return stored_form(self.buffers[tensor.Buffer()].view(NUMPY_TYPES[dtype]), sparsity) if sparsity else None

    def _operator(self, index: int, operator: Any, tensors: int) -> Operator:
        if not 0 <= operator.OpcodeIndex() < len(self.codes):
            raise ModelError(
                f"operator {index} has operator code {operator.OpcodeIndex()}; the model has {len(self.codes)}"
            )
        code, version, is_custom = self.codes[operator.OpcodeIndex()]
        where = f"operator {index} {code}"
        inputs = _indices(operator.InputsAsNumpy(), tensors, f"inputs of {where}", absent=True)
        outputs = _indices(operator.OutputsAsNumpy(), tensors, f"outputs of {where}")
        intermediates = _indices(operator.IntermediatesAsNumpy(), tensors, f"intermediate tensors of {where}")
        check_arity(where, code, is_custom, inputs, outputs)
        place = operator.LargeCustomOptionsOffset(), operator.LargeCustomOptionsSize()
        custom = stored_bytes(self.data, f"options of {where}", operator.CustomOptionsAsNumpy(), *place).tobytes()
        options = {} if is_custom else read_options(operator, index, code)
        if is_custom:
            check_custom_options(where, code, custom)
        else:
            check_option_values(where, code, options, inputs, outputs)
        return Operator(
            index,
            code,
            version,
            inputs,
            outputs,
            options,
            is_custom,
            custom,
            intermediates=intermediates,
        )

    def _signature(self, signature: Any, subgraphs: tuple[Subgraph, ...]) -> Signature:
        key, index = decoded(signature.SignatureKey()), signature.SubgraphIndex()
        if index >= len(subgraphs):
            raise ModelError(f"signature {key!r} refers to subgraph {index}; the model has {len(subgraphs)}")
        subgraph, names = subgraphs[index], list[dict[str, int]]()
        known = {*subgraph.inputs, *(t for o in subgraph.operators for t in o.outputs)}
        known |= {t.index for t in subgraph.tensors if t.data is not None or t.is_variable}
        for side in ("Inputs", "Outputs"):
            arguments = {decoded(m.Name()): int(m.TensorIndex()) for m in self.each(signature, side)}
            if strange := sorted({*arguments.values()} - known):
                raise ModelError(
                    f"signature {key!r} has tensors {strange} among its {side.lower()}, which have no value in "
                    f"subgraph {index}"
                )
            names.append(arguments)
        return Signature(key, index, *names)


def _check_order(index: int, subgraph: Subgraph) -> None:
    """Check that every tensor is written once, and before it is read: the file's order is the order of execution.

    Variable tensors have a value from the start and may be written often. Raises ModelError.
    """
    ready = {*subgraph.inputs, *(t.index for t in subgraph.tensors if t.data is not None or t.is_variable)}
    for operator in subgraph.operators:
        for tensor in operator.inputs:
            if tensor >= 0 and tensor not in ready:
                name = subgraph.tensors[tensor].name
                # An empty constant has no data, so it looks like a tensor that no operator writes.
                if prod(subgraph.tensors[tensor].shape) != 0:
                    raise ModelError(
                        f"subgraph {index}, operator {operator.index} {operator.code} reads tensor {tensor} {name!r} "
                        "before any operator writes it"
                    )
        for tensor in operator.outputs:
            if tensor in ready and not subgraph.tensors[tensor].is_variable:
                raise ModelError(
                    f"subgraph {index}, operator {operator.index} {operator.code} writes tensor {tensor}, "
                    "which is an input, a constant, or written already"
                )
            ready.add(tensor)
    missing = [t for t in subgraph.outputs if t not in ready]
    if missing:
        raise ModelError(f"subgraph {index} has output tensors {missing} that no operator writes")


def _form(where: str, tensor: Any) -> tuple[Shape, Shape, str]:
    """Shape, shape with -1 for what the file leaves open, and element type. Raises ModelError."""
    shape = _ints(tensor.ShapeAsNumpy())
    signature = _ints(tensor.ShapeSignatureAsNumpy())
    dtype = DTYPES.get(tensor.Type())
    if dtype is None:
        raise ModelError(f"{where} has element type {tensor.Type()}, which the schema does not know")
    if len(shape) > MAX_RANK or any(d < 0 for d in shape):
        raise ModelError(
            f"{where} has shape {list(shape)}; at most {MAX_RANK} dimensions, none negative, were expected"
        )
    # Signatures of other lengths are damaged, and LiteRT ignores them.
    return shape, signature if len(signature) == len(shape) else shape, dtype


def _tensor_info(name: str, tensor: Any) -> TensorInfo:
    where = f"tensor {name!r}"
    shape, signature, dtype = _form(where, tensor)
    free_axes = tuple(axis for axis, size in enumerate(signature) if size == -1)
    quantization = _quantization(where, tensor.Quantization(), shape, constant=False)
    return TensorInfo(name, shape, dtype, quantization, free_axes)


def _quantization(where: str, table: Any, shape: Shape, *, constant: bool) -> Quantization | None:
    """Return the scales of a tensor, of which only those of constants may be negative. Raises ModelError."""
    if table is None or table.ScaleLength() == 0:
        return None
    scales = table.ScaleAsNumpy()
    scale, zero_point = tuple(scales.tolist()), _ints(table.ZeroPointAsNumpy()) or (0,)
    axis = table.QuantizedDimension()
    if not (np.isfinite(scales) & (constant | (scales >= 0))).all():
        expected = "finite numbers" if constant else "finite numbers, none negative,"
        raise ModelError(f"{where} has scales {list(scale)[:8]}; {expected} were expected")
    if len(zero_point) == 1:
        zero_point *= len(scale)
    if len(zero_point) != len(scale) or (len(scale) > 1 and not (axis < len(shape) and shape[axis] == len(scale))):
        raise ModelError(
            f"{where} of shape {list(shape)} has {len(scale)} scales and {len(zero_point)} zero points "
            f"along axis {axis}"
        )
    return Quantization(scale, zero_point, axis)


def _ints(array: Any) -> tuple[int, ...]:
    return () if isinstance(array, int) else tuple(array.tolist())


def _indices(array: Any, count: int, what: str, *, absent: bool = False) -> tuple[int, ...]:
    """Return a vector of tensor indices of the subgraph; -1 is allowed if inputs may be ``absent``. Raises
    ModelError."""
    indices = _ints(array)
    lowest = -1 if absent else 0
    bad = [i for i in indices if not lowest <= i < count]
    if bad:
        raise ModelError(f"{what} name tensors {bad}, but there are {count} tensors")
    return indices
