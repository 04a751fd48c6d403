"""Describes a model's tensors as LiteRT's interpreter does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tflgpu.graph.layout import Shape

if TYPE_CHECKING:
    from tflgpu.model.model import FileTensor


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
    """The dictionary that LiteRT's ``get_tensor_details`` gives for a tensor. shape: replaces the file's.

    Sparse constants are dense here, and are described so.
    """
    quantization = tensor.quantization
    scales = quantization.scale if quantization else ()
    zero_points = quantization.zero_point if quantization else ()
    return {
        "name": tensor.name,
        "index": tensor.index,
        "shape": np.array(tensor.shape if shape is None else shape, np.int32),
        "shape_signature": np.array(tensor.signature, np.int32),
        "dtype": TYPES.get(tensor.dtype) or np.dtype(tensor.dtype).type,
        # The old form has room for one pair only.
        "quantization": (scales[0], zero_points[0]) if len(scales) == 1 else (0.0, 0),
        "quantization_parameters": {
            "scales": np.array(scales, np.float32),
            "zero_points": np.array(zero_points, np.int32),
            "quantized_dimension": quantization.axis if quantization else 0,
            "block_size": 0,
        },
        "sparsity_parameters": {},
    }
