"""A model as its file declares it. The reader makes it from the bytes, and all later stages start from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from tflgpu.graph.layout import Shape
from tflgpu.model.sparsity import StoredForm
from tflgpu.model.tensor_info import Quantization

Array = NDArray[np.generic]

# Names of the schema's TensorType, in lower case.
DTYPES = {
    value: name.lower()
    for name, value in vars(tflite.TensorType).items()
    if not name.startswith("_") and isinstance(value, int)
}


@dataclass(frozen=True)
class Blocks:
    """Blocks of ``size`` integers along the last axis of a constant; the last one of a row may be shorter.

    scales: one for each block, in the order of the elements. zeros: their zero points, None if all are 0.
    """

    size: int
    scales: NDArray[np.float32]
    zeros: NDArray[np.float32] | None

    def of_elements(self, numbers: NDArray[np.float32], length: int) -> NDArray[np.float32]:
        """Return the numbers of blocks for each element of a row.

        Args:
            numbers: One for each block.
            length: Elements of a row.
        """
        return np.repeat(numbers, self.size, axis=-1)[..., :length]

    def dequantized(self, integers: Array) -> NDArray[np.float32]:
        """Return the numbers for which integers stand; floats have room for the digits of such products.

        Args:
            integers: Rows of elements, before their zero points are subtracted.
        """
        numbers, length = integers.astype(np.float32), integers.shape[-1]
        are_whole = length % self.size == 0  # then no number is there twice
        blocks = numbers.reshape(*self.scales.shape, self.size) if are_whole else numbers

        def spread(each: NDArray[np.float32]) -> NDArray[np.float32]:
            return each[..., np.newaxis] if are_whole else self.of_elements(each, length)

        with np.errstate(all="ignore"):
            if self.zeros is not None:
                blocks -= spread(self.zeros)
            blocks *= spread(self.scales)
        return numbers


@dataclass(frozen=True)
class FileTensor:
    """A tensor as the file declares it.

    data: of a constant, a view of the file's bytes; sparse constants are dense here, and as they are in the file in
    ``sparse``. signature: the shape with -1 for each dimension that the file leaves open. blocks: of a constant
    of integers that have scales for blocks along its last axis.
    """

    index: int
    name: str
    shape: Shape
    signature: Shape
    dtype: str
    data: Array | None = field(default=None, compare=False, repr=False)
    quantization: Quantization | None = None
    is_variable: bool = False
    sparse: StoredForm | None = field(default=None, compare=False, repr=False)
    blocks: Blocks | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return self.size * itemsize(self.dtype)


@dataclass(frozen=True)
class VariableUse:
    """The values of a resource variable in a subgraph, or around an operator that calls one.

    key: the variable's container and name, see ``tflgpu.frontend.resource_variables``. form: a tensor of its shape,
    element type and quantization. before: the tensor with its value at the start; None if nothing reads it. after: the
    tensor with its value at the end; None if nothing assigns it. is_shared: whether several signatures use it.
    """

    key: str
    form: FileTensor
    before: int | None
    after: int | None
    is_shared: bool = False


@dataclass(frozen=True)
class FirstValues:
    """The values that a CALL_ONCE gives variables, in the elements of the file. subgraph: what it runs."""

    subgraph: int
    values: tuple[tuple[VariableUse, Array], ...] = field(compare=False)


@dataclass(frozen=True)
class Operator:
    """One operator.

    options: the fields of its flatbuffer table by snake_case name; a field that the file leaves out has its default.
    intermediates: tensors that no operator reads: their grids say how an LSTM of integers rounds on its way.
    variables: those that the subgraphs which it calls use; their values are its last inputs and outputs. handles: the
    file's tensors with handles of these, by number, that are none of its inputs any more. is_idle: whether it does
    nothing: what it did with variables is in the tensors that others read. obstacle: why variables that it uses cannot
    become values.
    """

    index: int
    code: str
    version: int
    inputs: tuple[int, ...]  # -1 is an absent optional input
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    is_custom: bool = False
    custom_options: bytes = b""
    variables: tuple[VariableUse, ...] = ()
    handles: tuple[tuple[int, str], ...] = ()
    is_idle: bool = False
    obstacle: str = ""
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Subgraph:
    """Operators in the order of execution; operators, inputs and outputs name tensors by index.

    variables: those whose values it reads or writes. first_values: what its CALL_ONCEs give. aliases: tensors of the
    file, each after the one that has its value: what READ_VARIABLE gives is the variable's value. is_left_to_litert:
    whether LiteRT runs all of it, since it uses what only LiteRT can keep.
    """

    name: str
    tensors: tuple[FileTensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    variables: tuple[VariableUse, ...] = ()
    first_values: tuple[FirstValues, ...] = ()
    aliases: Mapping[int, int] = field(default_factory=dict)
    is_left_to_litert: bool = False


@dataclass(frozen=True)
class Signature:
    """A named entry point: argument names -> tensor indices of one subgraph."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class Model:
    """A whole file. subgraphs: the first one is run, others are called by operators or signatures.

    kept_in_litert: the variables of subgraphs that are left to LiteRT.
    """

    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...]
    description: str
    kept_in_litert: tuple[VariableUse, ...] = ()


# The types whose data become numpy arrays; other data stay raw bytes.
NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in DTYPES.values()
    if name in np.sctypeDict and name not in ("string", "int4", "bfloat16")
}


def itemsize(dtype: str) -> int:
    """Return the bytes of one element; 1 for types that numpy does not have.

    Args:
        dtype: The name of an element type of the schema.
    """
    return NUMPY_TYPES[dtype].itemsize if dtype in NUMPY_TYPES else 1
