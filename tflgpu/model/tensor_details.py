"""Describes a model's tensors and operators as LiteRT's interpreter does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tflgpu.graph.layout import Shape

if TYPE_CHECKING:
    from tflgpu.model.model import FileTensor, Operator


# LiteRT's Python types of elements that numpy does not have, or has under another name.
TYPES: dict[str, Any] = {
    "bool": np.bool_,
    "string": np.bytes_,
    "resource": np.object_,
    "variant": np.object_,
    "int4": np.int8,
    "bfloat16": np.uint16,  # LiteRT's own interpreter cannot describe these
}


def tensor_details(tensor: FileTensor, shape: Shape | None = None) -> dict[str, Any]:
    """Return the dictionary that LiteRT's ``get_tensor_details`` gives for a tensor.

    Args:
        tensor: A tensor of the file.
        shape: Replaces the file's; None to keep that.
    """
    shape = tensor.shape if shape is None else shape
    quantization = tensor.quantization
    scales = quantization.scale if quantization else ()
    zero_points = quantization.zero_point if quantization else ()
    return {
        "name": tensor.name,
        "index": tensor.index,
        "shape": np.array(shape, np.int32),
        # A file names open dimensions or nothing; in place of nothing LiteRT gives the shape.
        "shape_signature": np.array(tensor.signature if -1 in tensor.signature else shape, np.int32),
        "dtype": TYPES.get(tensor.dtype) or np.dtype(tensor.dtype).type,
        # The old form has room for one pair only.
        "quantization": (scales[0], zero_points[0]) if len(scales) == 1 else (0.0, 0),
        "quantization_parameters": {
            "scales": np.array(scales, np.float32),
            "zero_points": np.array(zero_points, np.int32),
            "quantized_dimension": quantization.axis if quantization else 0,
            "block_size": 0,
        },
        "sparsity_parameters": tensor.sparse.parameters if tensor.sparse else {},
    }


def operator_details(operator: Operator, tensors: Sequence[FileTensor]) -> dict[str, Any]:
    """Return the dictionary that LiteRT's ``_get_ops_details`` gives for an operator.

    Args:
        operator: The operator.
        tensors: All tensors of its subgraph.
    """
    operands, results = (
        [tensor_details(tensors[t])["dtype"] for t in side if t >= 0] for side in (operator.inputs, operator.outputs)
    )
    return {
        "index": operator.index,
        "op_name": operator.code,
        "inputs": np.array(operator.inputs, np.int32),
        "outputs": np.array(operator.outputs, np.int32),
        "operand_types": operands,
        "result_types": results,
    }
