"""Weights as the integers that they were quantized to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import output_channel_axis

# Greatest magnitude of an 8-bit integer less its zero point, if both have 8 bits.
MOST = 255


@dataclass(frozen=True)
class WholeWeights:
    """Weights [out, kh, kw, in] as integers, and the scale of each output channel."""

    integers: Array
    scale: Array


def whole_weights(request: Request) -> WholeWeights | None:
    """Return the weights of a convolution or a fully connected layer, if they are integers by one scale a channel."""
    weights, out = request.graph[request.node.inputs[1]], request.output.channels
    axis = output_channel_axis(request.node)
    elements = weights.data if weights.scale is not None else None
    if elements is None or weights.scale is None or axis is None or weights.shape[axis] != out:
        return None
    scale = np.asarray(weights.scale, np.float64)
    along = scale.shape[axis - elements.ndim :][:1]
    if scale.size not in (1, out) or scale.size != max(along, default=1) or not (scale > 0).all():
        return None
    scale = np.broadcast_to(scale.reshape(-1), (out,))
    data = np.moveaxis(elements, axis, 0)
    data = data.reshape(out, *(data.shape[1:] if data.ndim == 4 else (1, 1, -1)))
    integers = np.rint(data / scale.reshape(-1, 1, 1, 1))
    if np.abs(integers).max(initial=0) > MOST:
        return None
    return WholeWeights(integers.astype(np.int16), scale)
