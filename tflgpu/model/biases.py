"""The numbers for which the integers of a bias stand.

TFLite's kernels add them to sums of products of integers, whatever scale is written beside them: it is that of the
input times that of the weights. Some writers leave the scale out, or write 1. TensorFlow's converter may share one bias
between two layers with different inputs, whose scales can only be right for one of them; the written scale is the
right one then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.model import FileTensor, Operator, Subgraph
from tflgpu.model.quantization import QUANTIZED_TYPES, has_grid
from tflgpu.model.tensor_info import Quantization

# The inputs of a layer that are its image, its weights and its bias, and the axis of the weights with its outputs.
OPERANDS = {
    "CONV_2D": (0, 1, 2, 0),
    "DEPTHWISE_CONV_2D": (0, 1, 2, 3),
    "FULLY_CONNECTED": (0, 1, 2, 0),
    "TRANSPOSE_CONV": (2, 1, 3, 0),
}

SAME = 1e-5  # relative difference of scales that are equal but for their rounding to floats


@dataclass(frozen=True)
class Use:
    """A constant bias of integers in a layer of integers. product: the scales of its sums, one or one a channel."""

    operator: int
    bias: FileTensor
    product: NDArray[np.float64]

    @property
    def is_as_written(self) -> bool:
        """Whether the scales in the file are those of the sums."""
        written = self.bias.quantization
        if written is None or len(written.scale) not in (1, self.bias.size):
            return False
        return bool(np.all(np.abs(np.array(written.scale) - self.product) <= SAME * np.abs(self.product)))

    @property
    def in_sums(self) -> FileTensor:
        """The bias with the scales of the sums."""
        scales = tuple(self.product.tolist())
        return replace(self.bias, quantization=Quantization(scales, (0,) * len(scales)))


def biases_of_sums(subgraph: Subgraph) -> Mapping[int, FileTensor]:
    """Return what operators have as their bias in place of the file's tensor, by the operators' indices.

    A written scale that is right for one of the layers that share a bias is believed in all of them.
    """
    uses = [*_uses(subgraph)]
    believed = {use.bias.index for use in uses if use.is_as_written}
    return {use.operator: use.in_sums for use in uses if use.bias.index not in believed}


def biases_of_one_layer(subgraph: Subgraph) -> frozenset[int]:
    """Return the operators whose bias has a written scale that is not theirs, but that of another layer with the same
    bias."""
    uses = [*_uses(subgraph)]
    believed = {use.bias.index for use in uses if use.is_as_written}
    return frozenset(use.operator for use in uses if use.bias.index in believed and not use.is_as_written)


def bias_position(operator: Operator) -> int:
    """Which input of a layer is its bias."""
    return OPERANDS[operator.code][2]


def _uses(subgraph: Subgraph) -> Iterator[Use]:
    for operator in subgraph.operators:
        image, weights, bias, axis = OPERANDS.get(operator.code, (0, 0, len(operator.inputs), 0))
        if len(operator.inputs) <= bias or operator.inputs[bias] < 0:
            continue
        x, w, b = (subgraph.tensors[operator.inputs[place]] for place in (image, weights, bias))
        if b.data is None or b.dtype not in ("int32", "int64") or x.dtype not in QUANTIZED_TYPES:
            continue
        if x.quantization is None or not has_grid(w) or w.quantization is None:
            continue
        scales = w.quantization.scale
        if len(scales) == 1 or (w.quantization.axis == axis and len(scales) == b.size):
            yield Use(operator.index, b, x.quantization.scale[0] * np.array(scales))
