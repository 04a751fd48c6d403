"""The shapes of the results of operators that only the CPU can run, as LiteRT computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tflgpu.fallback import is_installed
from tflgpu.fallback.crash_report import ask_guarded
from tflgpu.fallback.guarded_process import GuardedProcess, RefusedError
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.fallback.submodel import Extract, Submodel
from tflgpu.frontend.lower import InferShapes
from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.model.flat_table import Bytes
from tflgpu.model.model import Operator, Subgraph


def litert_shapes(data: Bytes, process: GuardedProcess) -> InferShapes | None:
    """Return a function that lets LiteRT infer shapes; None where LiteRT is not installed.

    Args:
        data: The file whose tensors are meant.
        process: Where LiteRT runs.
    """
    return _ShapeInference(data, process).infer if is_installed() else None


class _ShapeInference:
    """LiteRT prepares a model of one operator. The results that then have no memory have no shape either.

    A table of such operators would have to follow LiteRT's kernels: whether WHILE keeps its shapes, for instance,
    depends on all that its body does.
    """

    def __init__(self, data: Bytes, process: GuardedProcess) -> None:
        self._data, self._process = data, process
        self._file: Any = None  # read when it is asked for first: most models run wholly on the device

    def infer(
        self, number: int, subgraph: Subgraph, operator: Operator, inputs: Sequence[Tensor | None]
    ) -> list[Shape | None]:
        """Return the shapes of an operator's outputs.

        Args:
            number: Of the operator's subgraph.
            subgraph: The operator's subgraph, with values in place of variables.
            operator: The operator.
            inputs: Its inputs, None where absent.

        Returns:
            A shape for each output; None for one that only a run can tell.

        Raises:
            UnsupportedError: LiteRT crashes when it prepares the operator.
        """
        alone = Submodel(self._model(number, subgraph, operator, inputs), ((operator.index, operator.code),))
        try:
            answer = ask_guarded(self._process, "shapes", alone)
        except RefusedError:
            return [None] * len(operator.outputs)
        return [None if shape is None else tuple(shape) for shape in answer]

    def _model(self, number: int, subgraph: Subgraph, operator: Operator, inputs: Sequence[Tensor | None]) -> bytes:
        """Return a file of one operator, whose inputs have the shapes, and where they are known the values, of
        ``inputs``."""
        if self._file is None:
            self._file = unpacked(self._data)
        given = [t for t in dict.fromkeys(operator.inputs) if t >= 0]
        part = Extract(self._file, number, subgraph, [operator.index], given, operator.outputs)
        for index, known in zip(operator.inputs, inputs, strict=True):
            if known is not None and not part.has_data(tensor := part.tensor(index)):
                tensor.shape, tensor.shapeSignature = list(known.shape), None
                if known.data is not None and known.data.dtype.kind in "iub":
                    part.writer.fill(tensor, np.frombuffer(known.data.tobytes(), np.uint8))
        for index in operator.outputs:  # what has no elements is then what LiteRT computed, not what the file has
            tensor = part.tensor(index)
            tensor.shape = None if tensor.shape is None else [max(1, int(size)) for size in tensor.shape]
        main = part.model.subgraphs[0]
        main.inputs = [i for i in main.inputs if not part.has_data(main.tensors[i])]
        return packed(part.model)
