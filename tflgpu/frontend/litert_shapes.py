"""What shapes LiteRT gives the results of operators that only the CPU can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from tflgpu.errors import UnsupportedError
from tflgpu.graph.ir import Array, Tensor
from tflgpu.graph.layout import Shape
from tflgpu.litert.piece import verdict
from tflgpu.litert.schema_objects import packed, unpacked
from tflgpu.litert.trial import DiedError, RefusedError, Trial
from tflgpu.model.model import Operator, Subgraph
from tflgpu.model.reader import Buffer

# The shapes of an operator's outputs; None for each that only a run can tell. Given: its inputs, None where absent.
InferShapes = Callable[[Operator, Sequence[Tensor | None]], Sequence[Shape | None]]


def declared_shapes(subgraph: Subgraph) -> InferShapes:
    """The shapes in the file, for when there is nobody to ask."""
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
        from ai_edge_litert import schema_py_generated as schema  # an extra of the package

        if self._file is None:
            self._file = unpacked(self._data)
        own = self._file.subgraphs[self._number]
        kept = _Buffers(self._file.buffers, schema.BufferT)
        indices = [t for t in dict.fromkeys((*operator.inputs, *operator.outputs)) if t >= 0]
        tensors = {t: kept.tensor(own.tensors[t]) for t in indices}
        for index, known in zip(operator.inputs, inputs, strict=True):
            if known is not None and not kept.has_data(tensors[index]):
                tensors[index].shape, tensors[index].shapeSignature = list(known.shape), None
                if known.data is not None and known.data.dtype.kind in "iub":
                    kept.fill(tensors[index], known.data)
        for index in (
            tensors.keys() & operator.outputs
        ):  # what has no elements is then what LiteRT computed, not what the file has
            shape = tensors[index].shape
            tensors[index].shape = None if shape is None else [max(1, int(size)) for size in shape]
        place = {t: i for i, t in enumerate(indices)} | {-1: -1}
        call, graph, model = copy(own.operators[operator.index]), schema.SubGraphT(), schema.ModelT()
        call.inputs, call.outputs = [place[t] for t in operator.inputs], [place[t] for t in operator.outputs]
        call.intermediates = None
        graph.tensors, graph.operators, graph.outputs = list(tensors.values()), [call], call.outputs
        graph.inputs = [i for i in dict.fromkeys(call.inputs) if i >= 0 and not kept.has_data(graph.tensors[i])]
        others = [copy(g) for g in self._file.subgraphs] if _calls_subgraphs(call) else []
        for called in others:
            called.tensors = list(map(kept.tensor, called.tensors))
        if self._number and others:
            others[self._number] = others[0]
        model.version, model.operatorCodes = self._file.version, self._file.operatorCodes
        model.subgraphs, model.buffers = [graph, *others[1:]], kept.buffers
        return packed(model)


class _Buffers:
    """The buffers that some tensors of a file need, under new numbers."""

    def __init__(self, old: Sequence[Any], new: Callable[[], Any]) -> None:
        self._old, self._new = old, new
        self.buffers = [new()]  # buffer 0 is empty by convention
        self._numbers = {0: 0}

    def tensor(self, tensor: Any) -> Any:
        """A copy of a tensor of the file."""
        if tensor.buffer not in self._numbers:
            self._numbers[tensor.buffer] = len(self.buffers)
            self.buffers.append(self._old[tensor.buffer])
        tensor = copy(tensor)
        tensor.buffer = self._numbers[tensor.buffer]
        return tensor

    def has_data(self, tensor: Any) -> bool:
        buffer = self.buffers[tensor.buffer]
        return bool(buffer.offset) or (buffer.data is not None and len(buffer.data) > 0)

    def fill(self, tensor: Any, data: Array) -> None:
        """Make a tensor a constant."""
        tensor.buffer = len(self.buffers)
        self.buffers.append(self._new())
        self.buffers[-1].data = np.frombuffer(data.tobytes(), np.uint8)


def _calls_subgraphs(operator: Any) -> bool:
    options = [vars(o) for o in (operator.builtinOptions, operator.builtinOptions2) if o is not None]
    return any("subgraph" in name.lower() for fields in options for name in fields)
