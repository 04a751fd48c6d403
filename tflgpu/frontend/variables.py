"""Variables while a model is lowered: which tensor of the graph holds the value of each.

TFLite has two kinds. *Resource variables* go by a handle, a container and a name: VAR_HANDLE gives it, CALL_ONCE
runs a subgraph that assigns first values, READ_VARIABLE and ASSIGN_VARIABLE do what they say, in the order of the file.
*Variable tensors* are tensors with a flag, which keep their value from run to run and are zeros at first.

A graph has neither: reading a variable gives the tensor that was assigned to it last, and what was assigned last in a
run is where the next one starts (:class:`tflgpu.ir.State`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tflgpu.errors import ModelError
from tflgpu.graph.ir import Array, Tensor
from tflgpu.graph.layout import Shape
from tflgpu.model.model import FileTensor, Operator
from tflgpu.model.quantization import dequantized, is_quantized, view_dtype
from tflgpu.model.text import decoded

Key = tuple[bytes, bytes] | int  # a resource variable's container and name, a variable tensor's index


@dataclass
class Variable:
    """What is known of one variable so far.

    like: a tensor of the file with its element type and quantization. initial: its first value in the float view, None
    for zeros. taken: elements that some READ_VARIABLE takes, whatever was assigned. start: its value at the start of a
    run, None until it is read. value: its value now. held: whether callers hold its memory.
    """

    name: str
    shape: Shape
    like: FileTensor
    initial: Array | None = None
    taken: int = 0
    start: Tensor | None = None
    value: Tensor | None = None
    held: bool = False


class Variables:
    """The variables of one subgraph."""

    def __init__(self, ids: Iterator[int]) -> None:
        self.known: dict[Key, Variable] = {}
        self._ids = ids
        self._handles: dict[int, tuple[bytes, bytes]] = {}  # tensor of the file -> the variable that it leads to

    def define_handle(self, operator: Operator) -> None:
        """VAR_HANDLE."""
        container, name = (operator.options.get(part) or b"" for part in ("container", "shared_name"))
        self._handles[operator.outputs[0]] = (container, name)

    def read(self, handle: int, target: FileTensor) -> Tensor | str:
        """READ_VARIABLE: the value for the file's tensor ``target``, or the obstacle that there is none.

        Raises ModelError if the file's tensor is larger than the variable: LiteRT reads what lies after it.
        """
        key = self._handles.get(handle)
        if key is None:
            return "its handle does not come from a VAR_HANDLE in the same subgraph"
        variable = self.known.get(key)
        if variable is None:
            return f"it reads variable {decoded(key[1])!r}, which no CALL_ONCE initializes"
        if -1 not in target.signature:  # LiteRT keeps the file's
            variable.taken = max(variable.taken, prod(target.shape))
            if target.shape != variable.shape:
                obstacle = (
                    f"it reads variable {variable.name!r} of shape {list(variable.shape)} as {list(target.shape)}"
                )
                if variable.taken > prod(variable.shape):
                    raise ModelError(f"a READ_VARIABLE: {obstacle}")
                return obstacle
        return _mismatch(variable, target) or self._value(variable)

    def assign(self, handle: int, value: Tensor, source: FileTensor) -> str | None:
        """ASSIGN_VARIABLE: ``value`` is what the file calls ``source``. Returns the obstacle, if there is one.

        Raises ModelError if less is assigned than is read: LiteRT then reads what lies after it.
        """
        key = self._handles.get(handle)
        if key is None:
            return "its handle does not come from a VAR_HANDLE in the same subgraph"
        variable = self.known.setdefault(key, Variable(decoded(key[1]), value.shape, source))
        if value.shape != variable.shape:
            obstacle = (
                f"it assigns shape {list(value.shape)} to variable {decoded(key[1])!r} of shape {list(variable.shape)}"
            )
            if value.size < variable.taken:
                raise ModelError(f"an ASSIGN_VARIABLE: {obstacle}")
            return obstacle
        variable.value = value
        return _mismatch(variable, source)

    def initialize(self, first: Variables) -> Iterator[str]:
        """CALL_ONCE, whose subgraph left the variables ``first``. Yields obstacles."""
        for key, variable in first.known.items():
            value = variable.value
            if isinstance(key, int):  # a variable tensor of that subgraph
                continue
            if key in self.known:
                yield f"it initializes variable {variable.name!r} after an operator used it"
            elif value is None or value.data is None:
                yield f"the first value of variable {variable.name!r} is no constant"
            else:
                self.known[key] = replace(variable, initial=value.data, start=None, value=None)

    def read_tensor(self, tensor: FileTensor, *, first: Array | None = None, held: bool = False) -> Tensor:
        """The value that a variable tensor has at the start of a run. first: at the start of the first one."""
        first = _first_value(tensor) if first is None else first
        variable = Variable(tensor.name, tensor.shape, tensor, first, held=held)
        self.known[tensor.index] = variable
        return self._value(variable)

    def assign_tensor(self, index: int, value: Tensor) -> None:
        """An operator writes a tensor of the file, which may be a variable."""
        if index in self.known:
            self.known[index].value = value

    def _value(self, variable: Variable) -> Tensor:
        if variable.value is None:
            dtype = view_dtype(variable.like)
            start = Tensor(next(self._ids), variable.name, variable.shape, dtype, precise=True)
            variable.value = variable.start = start
        return variable.value


def _mismatch(variable: Variable, tensor: FileTensor) -> str | None:
    """The obstacle that an operator takes a variable's numbers for others than they are."""
    like = variable.like
    if (like.dtype, like.quantization) == (tensor.dtype, tensor.quantization):
        return None
    return (
        f"variable {variable.name!r} holds {like.dtype} with quantization {like.quantization}, but tensor "
        f"{tensor.name!r} is {tensor.dtype} with {tensor.quantization}"
    )


def _first_value(tensor: FileTensor) -> Array | None:
    """The numbers that a variable tensor begins with: LiteRT fills it with zero bytes, in int8 with the zero point."""
    if not is_quantized(tensor) or tensor.dtype == "int8":
        return None
    return dequantized(replace(tensor, data=np.zeros(tensor.shape, tensor.dtype)))
