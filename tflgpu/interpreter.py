"""The CPU's pieces of a model: sub-models for LiteRT's interpreter (the extra ``fallback``)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.partition import Piece

ADVICE = 'install the CPU fallback with `pip install "tflgpu[fallback]"`'
IDENTIFIER = b"TFL3"


def is_installed() -> bool:
    return find_spec("ai_edge_litert") is not None


class CpuPiece:
    """Runs the operators of one piece on the CPU. Not thread-safe: the caller serializes :meth:`run`."""

    def __init__(self, data: bytes, subgraph: int, piece: Piece) -> None:
        """Raises RuntimeError if LiteRT refuses the operators as well."""
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter: Any = Interpreter(model_content=submodel(data, subgraph, piece))
        self._interpreter.allocate_tensors()
        self._inputs = [d["index"] for d in self._interpreter.get_input_details()]
        self._outputs = [d["index"] for d in self._interpreter.get_output_details()]

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Arrays in the order of the piece's inputs -> fresh arrays in the order of its outputs."""
        for index, array in zip(self._inputs, inputs, strict=True):
            self._interpreter.set_tensor(index, np.ascontiguousarray(array))
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._outputs]


def submodel(data: bytes, subgraph: int, piece: Piece) -> bytes:
    """The model with one subgraph reduced to a piece; the subgraphs that control flow calls stay.

    Buffers that nothing refers to any more are emptied, not removed, so that no index changes.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    graph = model.subgraphs[subgraph]
    graph.operators = [graph.operators[i] for i in piece.operators]
    graph.inputs, graph.outputs = list(piece.inputs), list(piece.outputs)
    model.signatureDefs, model.metadata = [], []
    if subgraph:
        model.subgraphs[0], model.subgraphs[subgraph] = model.subgraphs[subgraph], model.subgraphs[0]
    used = {t for o in graph.operators for t in (*o.inputs, *o.outputs)} | {*piece.inputs, *piece.outputs}
    kept = {graph.tensors[t].buffer for t in used if t >= 0}
    kept |= {t.buffer for g in model.subgraphs if g is not graph for t in g.tensors}
    for i, buffer in enumerate(model.buffers):
        if i not in kept:
            buffer.data = None
    builder: Any = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())
