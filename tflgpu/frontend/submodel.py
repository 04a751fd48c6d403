"""The CPU's partition of a model, written as a model of its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from tflgpu.frontend.partition import Partition
from tflgpu.graph.layout import Shape
from tflgpu.litert.schema_objects import packed, unpacked
from tflgpu.model.tensor_info import TensorIndex

ADVICE = 'install the CPU fallback with `pip install "tflgpu[fallback]"`'


def is_installed() -> bool:
    return find_spec("ai_edge_litert") is not None


def submodel(data: bytes, subgraph: int, partition: Partition, shapes: Mapping[TensorIndex, Shape]) -> bytes:
    """The model with one subgraph reduced to a piece; the subgraphs that control flow calls stay.

    shapes: of the piece's inputs, where they are known; the file does not always have them.
    Buffers that nothing refers to any more are emptied, not removed, so that no index changes.
    """
    model = unpacked(data)
    graph = model.subgraphs[subgraph]
    graph.operators = [graph.operators[i] for i in partition.operators]
    graph.inputs, graph.outputs = list(partition.inputs), list(partition.outputs)
    for index, shape in shapes.items():
        graph.tensors[index].shape = list(shape)
    model.signatureDefs, model.metadata = [], []
    if subgraph:
        model.subgraphs[0], model.subgraphs[subgraph] = model.subgraphs[subgraph], model.subgraphs[0]
    used = {t for o in graph.operators for side in (o.inputs, o.outputs) if side is not None for t in side}
    used |= {*partition.inputs, *partition.outputs}
    kept = {graph.tensors[t].buffer for t in used if t >= 0}
    kept |= {t.buffer for g in model.subgraphs if g is not graph for t in g.tensors}
    for i, buffer in enumerate(model.buffers):
        if i not in kept:
            buffer.data = None
    return packed(model)
