"""Runs the CPU's partitions of a model with LiteRT's interpreter (the extra ``fallback``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.layout import Shape


class CpuExecutor:
    """Runs the operators of one partition on the CPU. Not thread-safe: the caller serializes :meth:`run`."""

    def __init__(self, model: bytes, *, is_open: bool = False) -> None:
        """``model`` is what :func:`tflgpu.frontend.submodel.submodel` returns.

        is_open: whether only a run can tell the shape of an input; until then LiteRT cannot judge the operators.
        Raises RuntimeError if LiteRT also refuses the operators.
        """
        self._model, self._is_open = model, is_open
        self.reset_state()

    def reset_state(self) -> None:
        """Make a new interpreter: LiteRT's ``reset_all_variables`` does not reset resource variables."""
        from ai_edge_litert.interpreter import Interpreter  # an extra of the package

        self._interpreter: Any = Interpreter(model_content=self._model)
        self._allocated = not self._is_open
        if self._allocated:
            self._interpreter.allocate_tensors()
        self._inputs = [d["index"] for d in self._interpreter.get_input_details()]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Arrays of any shapes in the order of the partition's inputs -> new arrays in the order of its outputs.

        Raises ValueError for shapes that the operators cannot take.
        """
        self._resize([a.shape for a in inputs])
        for index, array in zip(self._inputs, inputs, strict=True):
            if array.size:  # LiteRT has no memory for an empty tensor, and refuses to copy nothing to it
                self._interpreter.set_tensor(index, np.asarray(array, order="C"))
        self._interpreter.invoke()
        return [self._result(detail) for detail in self._interpreter.get_output_details()]

    def _result(self, detail: Mapping[str, Any]) -> NDArray[Any]:
        shape = tuple(map(int, detail["shape"]))  # that of this run: the sizes may depend on the inputs' values
        return self._interpreter.get_tensor(detail["index"]) if 0 not in shape else np.empty(shape, detail["dtype"])

    def _resize(self, shapes: Sequence[Shape]) -> None:
        details = self._interpreter.get_input_details()
        if any(tuple(d["shape"]) != shape for d, shape in zip(details, shapes, strict=True)):
            for index, shape in zip(self._inputs, shapes, strict=True):
                self._interpreter.resize_tensor_input(index, shape)
            self._allocated = False
        if not self._allocated:
            try:
                self._interpreter.allocate_tensors()
            except RuntimeError as refusal:
                given = ", ".join(str(list(shape)) for shape in shapes)
                raise ValueError(f"the model cannot take inputs of shapes {given}; LiteRT says: {refusal}") from refusal
            self._allocated = True
