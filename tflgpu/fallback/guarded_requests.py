"""Requests to LiteRT in the guarded process: first runs, the operator with which one crashed, and shapes of results."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from tflgpu.errors import UnsupportedError
from tflgpu.fallback import is_installed
from tflgpu.fallback.guarded_process import CrashedError, GuardedProcess, RefusedError, Task
from tflgpu.fallback.litert_interpreter import Array
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.fallback.submodel import Extract, Submodel
from tflgpu.frontend.lower import InferShapes
from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.model.flat_table import Bytes
from tflgpu.model.model import Operator, Subgraph

# Operators that can repeat others without end.
LOOPS = frozenset(("WHILE", "STABLEHLO_WHILE", "IF", "CALL", "CALL_ONCE"))

DOING = {"shapes": "preparing", "prepare": "preparing", "run": "running"}


def ask_guarded(process: GuardedProcess, task: Task, submodel: Submodel, inputs: Sequence[Array] = ()) -> Any:
    """Let LiteRT do a task with a sub-model in a guarded process.

    Args:
        process: The guarded process.
        task: What to do.
        submodel: The operators.
        inputs: For a run, in the order of the sub-model's inputs.

    Returns:
        The result of :meth:`GuardedProcess.ask`.

    Raises:
        UnsupportedError: It crashes or takes too long; the error names the operator.
        RefusedError: LiteRT refuses.
    """
    try:
        return process.ask(task, submodel.model, inputs, is_open=submodel.is_open, place=submodel.place)
    except CrashedError as crash:
        culprits = _loops(submodel) if crash.timed_out else _crashing(process, task, submodel, inputs)
        raise UnsupportedError((_sentence(task, culprits, crash),)) from crash


def _sentence(task: Task, operators: Sequence[tuple[int, str]], crash: CrashedError) -> str:
    """Return what LiteRT was doing with which operators, and how its process ended."""
    names = ", ".join(f"{index} {code}" for index, code in operators)
    what = f"operator{'s' if len(operators) > 1 else ''} {names}: {DOING[task]} it on the CPU {crash}"
    return what + (
        "; Options.cpu_part.trial_timeout gives it longer" if crash.timed_out else " in LiteRT's interpreter"
    )


def _loops(submodel: Submodel) -> Sequence[tuple[int, str]]:
    """Return the operators that can run without end; all, if there is none."""
    return [o for o in submodel.operators if o[1] in LOOPS] or submodel.operators


def _crashing(
    process: GuardedProcess, task: Task, submodel: Submodel, inputs: Sequence[Array]
) -> Sequence[tuple[int, str]]:
    """Return the operator that the sub-model crashes with and not without; all, if it does not crash again."""
    if submodel.entry is not None:
        return submodel.operators

    def crashes(count: int) -> bool:
        try:
            process.ask(task, _beginning(submodel.model, count), inputs, is_open=submodel.is_open)
        except CrashedError:
            return True
        except ValueError:  # refused
            return False
        return False

    operators = submodel.operators
    counts = range(1, len(operators))
    found = bisect_left(counts, True, key=crashes)
    if len(operators) > 1 and found == len(counts) and not crashes(len(operators)):
        return operators
    return operators[found : found + 1]


def _beginning(model: bytes, count: int) -> bytes:
    """Return the model with the first ``count`` operators of its main subgraph alone, whose last results are its
    outputs."""
    file = unpacked(model)
    graph = file.subgraphs[0]
    if count < len(graph.operators):
        graph.operators = graph.operators[:count]
        graph.outputs = list(graph.operators[-1].outputs)
    return packed(file)


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
