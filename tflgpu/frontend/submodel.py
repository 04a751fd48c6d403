"""The CPU's partition of a model, written as a model of its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from tflgpu.frontend.partition import Partition
from tflgpu.graph.layout import Shape
from tflgpu.litert.extract import Extract
from tflgpu.litert.schema_objects import packed, unpacked
from tflgpu.model.tensor_info import TensorIndex

ADVICE = 'install the CPU fallback with `pip install "tflgpu[fallback]"`'


def is_installed() -> bool:
    """Whether LiteRT's interpreter can be imported."""
    return find_spec("ai_edge_litert") is not None


def submodel(data: bytes, subgraph: int, partition: Partition, shapes: Mapping[TensorIndex, Shape]) -> bytes:
    """A model of the operators of a piece, and of the subgraphs that these call.

    shapes: of the piece's inputs, where they are known; the file does not always have them.
    """
    part = Extract(unpacked(data), subgraph, partition.operators, partition.inputs, partition.outputs)
    for index, shape in shapes.items():
        part.tensor(index).shape = list(shape)
    return packed(part.model)
