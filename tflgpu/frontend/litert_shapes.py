"""What shapes LiteRT gives the results of operators that only the CPU can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tflgpu.errors import UnsupportedError
from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.litert.extract import Extract
from tflgpu.litert.piece import verdict
from tflgpu.litert.schema_objects import packed, unpacked
from tflgpu.litert.trial import DiedError, RefusedError, Trial
from tflgpu.model.model import Operator, Subgraph
from tflgpu.model.reader import Buffer

# The shapes of an operator's outputs; None for each that only a run can tell. Given: its inputs, None where absent.
InferShapes = Callable[[Operator, Sequence[Tensor | None]], Sequence[Shape | None]]


def declared_shapes(subgraph: Subgraph) -> InferShapes:
    """The shapes in the file, where LiteRT is not installed."""
    return lambda operator, _: [subgraph.tensors[t].shape for t in operator.outputs]


class LitertShapes:
    """LiteRT prepares a model of one operator. The results that then have no memory have no shape either.

    A table of such operators would have to follow LiteRT's kernels: whether WHILE keeps its shapes, for instance,
    depends on all that its body does.
    """

    def __init__(self, data: Buffer, subgraph: int, trial: Trial) -> None:
        self._data, self._number, self._trial = data, subgraph, trial
        self._file: Any = None  # read when it is asked for first: most models run wholly on the device

    def of(self, operator: Operator, inputs: Sequence[Tensor | None]) -> list[Shape | None]:
        """Raises UnsupportedError if LiteRT does not survive the question."""
        try:
            answer = self._trial.ask("shapes", self._model(operator, inputs))
        except RefusedError:
            return [None] * len(operator.outputs)
        except DiedError as end:
            raise UnsupportedError((verdict("shapes", [(operator.index, operator.code)], end),)) from end
        return [None if shape is None else tuple(shape) for shape in answer]

    def _model(self, operator: Operator, inputs: Sequence[Tensor | None]) -> bytes:
        """A file of one operator, whose inputs have the shapes, and where they are known the values, of ``inputs``."""
        if self._file is None:
            self._file = unpacked(self._data)
        given = [t for t in dict.fromkeys(operator.inputs) if t >= 0]
        part = Extract(self._file, self._number, [operator.index], given, operator.outputs)
        for index, known in zip(operator.inputs, inputs, strict=True):
            if known is not None and not part.has_data(tensor := part.tensor(index)):
                tensor.shape, tensor.shapeSignature = list(known.shape), None
                if known.data is not None and known.data.dtype.kind in "iub":
                    part.fill(tensor, np.frombuffer(known.data.tobytes(), np.uint8))
        for index in operator.outputs:  # what has no elements is then what LiteRT computed, not what the file has
            tensor = part.tensor(index)
            tensor.shape = None if tensor.shape is None else [max(1, int(size)) for size in tensor.shape]
        main = part.model.subgraphs[0]
        main.inputs = [i for i in main.inputs if not part.has_data(main.tensors[i])]
        return packed(part.model)
