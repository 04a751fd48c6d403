"""A model of dynamic range with its weights in float, so that LiteRT computes it in float, too.

LiteRT's kernels quantize the activations that integers multiply, and are off by up to a percent for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.quantization import dequantized, is_quantized

if TYPE_CHECKING:
    from tflgpu.model.model import Subgraph


def with_float_weights(data: bytes, subgraph: Subgraph) -> bytes:
    """Return a file with floats in place of the quantized constants that operators on floats read.

    Args:
        data: The file.
        subgraph: Its main subgraph.

    Raises:
        ModelError: LiteRT's schema does not know a part of the file.
    """
    from ai_edge_litert import schema_py_generated as schema  # an extra of the package

    weights = _weights(subgraph)
    if not weights:
        return data
    file = unpacked(data)
    for number in sorted(weights):
        tensor = file.subgraphs[0].tensors[number]
        tensor.type, tensor.quantization, tensor.sparsity = schema.TensorType.FLOAT32, None, None
        tensor.buffer = len(file.buffers)
        file.buffers.append(schema.BufferT(data=dequantized(subgraph.tensors[number]).view("uint8").reshape(-1)))
    return packed(file)


def _weights(subgraph: Subgraph) -> set[int]:
    """Return the quantized constants whose readers give floats; DEQUANTIZE takes no others."""
    constants = {t.index for t in subgraph.tensors if t.data is not None and is_quantized(t) and "int32" not in t.dtype}
    found, others = set[int](), set[int]()
    for operator in subgraph.operators:
        gives_floats = all(subgraph.tensors[t].dtype == "float32" for t in operator.outputs if t >= 0)
        side = found if gives_floats and operator.code != "DEQUANTIZE" else others
        side.update(constants.intersection(operator.inputs))
    return found - others - set(subgraph.outputs)
