"""Values that a model keeps from run to run, while it is lowered: the tensor of the graph that holds each.

There are *resource variables*, which :mod:`tflgpu.frontend.resource_variables` has made values; inputs that callers
bind to outputs; and *variable tensors*: tensors with a flag, which keep their value from run to run and are zeros at
first.

A graph has none of these: what has the value at the end of a run is where the next one starts
(:class:`tflgpu.graph.ir.State`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Array, Tensor
from tflgpu.model.model import FileTensor
from tflgpu.model.quantization import dequantized, is_quantized, view_dtype

Key = str | int  # a resource variable's key, a variable tensor's or a bound input's index


@dataclass
class Variable:
    """Facts about one variable that are known so far.

    start: its value at the start of a run. value: its value now. initial: its first value in the float view, None for
    zeros. held: whether callers hold its memory. precise: whether it is kept in float in any case.
    """

    name: str
    start: Tensor
    value: Tensor
    initial: Array | None = None
    held: bool = False
    precise: bool = False


class Variables:
    """The variables of one subgraph."""

    def __init__(self, ids: Iterator[int]) -> None:
        self.known: dict[Key, Variable] = {}
        self._ids = ids

    def start(
        self,
        key: Key,
        form: FileTensor,
        *,
        first: Array | None = None,
        held: bool = False,
        precise: bool = False,
    ) -> Tensor:
        """Return the value that a variable has at the start of a run.

        Args:
            key: Of the variable.
            form: A tensor of its shape, element type and quantization.
            first: The value at the start of the first run, by default zeros.
            held: Whether callers hold its memory.
            precise: Whether it is kept in float in any case.
        """
        start = Tensor(next(self._ids), form.name, form.shape, view_dtype(form), precise=True)
        self.known[key] = Variable(form.name, start, start, first, held, precise)
        return start

    def assign(self, key: Key, value: Tensor) -> None:
        """Let a variable have a value from now on.

        Args:
            key: The variable's; nothing happens for a tensor of the file that is no variable.
            value: A tensor of the graph.
        """
        if key in self.known:
            self.known[key].value = value


def first_value(tensor: FileTensor) -> Array | None:
    """Return the numbers that a variable tensor begins with; None for zeros.

    LiteRT fills it with zero bytes, in int8 with the zero point.

    Args:
        tensor: A variable tensor of the file.
    """
    if not is_quantized(tensor) or tensor.dtype == "int8":
        return None
    return dequantized(replace(tensor, data=np.zeros(tensor.shape, tensor.dtype)))
