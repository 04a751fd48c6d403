"""Half precision holds the integers of an 8-bit quantized model exactly, but rounds the numbers that they stand for.

So weights, and activations that only convolutions read, are stored as these integers, and a convolution multiplies its
sum by their scale. A power of two stays with the integers, so that sums have about the size that they had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Graph, Input, Node, Operand, Tensor, TensorId, Value
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.epilogue_scales import without_division
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.image.convolution import output_channel_axis

# Powers of two of which half precision holds every multiple by the difference of two 8-bit integers.
LEAST_EXPONENT, GREATEST_EXPONENT = -24, 8

# Epilogue ops whose results are multiples of their first parameter.
ROUNDING = ("dequantize", "requantize", "fake_quantize")


def keep_whole_numbers(planning: Planning) -> Planning:
    """Where weights are stored in half: ``conv(x, scale * q, bias)`` becomes ``conv(x, q, bias / scale) * scale``.

    An activation that is stored without its scale has that as its ``factor``.
    """
    if planning.target.storage != "half":
        return planning
    return replace(planning, graph=_WholeNumbers(planning.graph, planning.storage).run())


def _factor_of(scale: Array) -> Array:
    """Return the number from 1 to 2 that makes a scale of a power of two; 1 if half precision cannot hold its
    multiples."""
    fraction, exponent = np.frexp(scale)
    return np.where((scale > 0) & (exponent > LEAST_EXPONENT) & (exponent <= GREATEST_EXPONENT + 1), 2 * fraction, 1.0)


class _WholeNumbers:
    def __init__(self, graph: Graph, storage: Mapping[TensorId, Storage]) -> None:
        self._graph = graph
        self._storage = storage
        self._scaled: list[Tensor] = []
        self._constants = NewTensors(graph)
        self._factors: dict[TensorId, float] = {}  # of activations; of none that is stored as it is

    def run(self) -> Graph:
        with np.errstate(all="ignore"):  # scales may be anything; those that half cannot hold change nothing
            return self._graph.with_each(self._whole, chain(self._scaled, self._constants))

    def _whole(self, node: Node) -> Node:
        return self._divided(self._multiplied(node))

    def _divided(self, node: Node) -> Node:
        """Return the node, which stores its result without the factor of its scale, if that can be."""
        if not node.epilogue or node.epilogue[-1].function not in ROUNDING or not self._is_for_sums(node.output):
            return node
        last = node.epilogue[-1]
        scale, *others = last.parameters
        factor = _factor_of(np.array(scale)).item()
        self._factors[node.output] = factor
        self._scaled.append(replace(self._graph[node.output], factor=factor))
        divisor = (scale,) if last.function == "fake_quantize" and len(others) == 3 else ()
        return replace(
            node, epilogue=(*node.epilogue[:-1], replace(last, parameters=(scale / factor, *others, *divisor)))
        )

    def _is_for_sums(self, tensor: TensorId) -> bool:
        """Whether a tensor is stored in half, and only as the image of convolutions."""
        readers = self._graph.consumers.get(tensor, ())
        return (
            self._storage[tensor].type == "half"
            and tensor not in self._graph.wanted
            and all(self._sums(n) and tensor not in n.inputs[1:] and 0 not in n.epilogue_inputs for n in readers)
        )

    def _sums(self, node: Node) -> bool:
        """Whether a node is a convolution whose weights are stored in half."""
        precise = any(self._graph[t].precise for t in (*node.inputs, node.output))
        return output_channel_axis(node) is not None and not precise

    def _multiplied(self, node: Node) -> Node:
        """Return the node, which multiplies its sum by the factors of its image and its weights, if it is a
        convolution."""
        if not self._sums(node):
            return node
        weights, scale, factor = self._without_factor(node)
        factor = factor * self._factors.get(node.inputs[0], 1.0)
        if np.all(factor == 1.0):
            return node
        epilogue, divisor = without_division(node.epilogue)
        inputs = [*node.inputs, self._constant(factor / divisor)]
        if weights is not None:
            inputs[1] = self._constant(weights, scale)
        if len(node.inputs) > 2 and 2 not in node.epilogue_inputs:
            bias = self._graph.constant(node.inputs[2])
            assert bias is not None, "a bias that is no constant belongs into the epilogue"
            inputs[2] = self._constant(bias.reshape(-1) / factor)

        def behind(operand: Operand) -> Operand:
            return Value(operand.index + 1) if isinstance(operand, Value) else operand

        product = EpilogueOp("mul", (Value(0), Input(len(node.inputs))))
        return replace(node, inputs=tuple(inputs), epilogue=(product, *(op.moved(behind) for op in epilogue)))

    def _without_factor(self, node: Node) -> tuple[Array | None, Array | None, Array]:
        """Whole weights and their scale, None if there are none, and what multiplies each output channel of them."""
        weights, axis = self._graph[node.inputs[1]], output_channel_axis(node)
        channels = np.ones(self._graph[node.output].shape[-1])
        if weights.scale is None or axis is None:
            return None, None, channels
        factor = _factor_of(weights.scale)
        if factor.size not in (1, factor.shape[axis]):
            return None, None, channels
        scale = weights.scale / factor
        data = weights.data
        assert data is not None
        whole = np.rint(data / weights.scale) * scale
        return np.where(factor == 1.0, data, whole), scale, channels * factor.reshape(-1)

    def _constant(self, data: Array, scale: Array | None = None) -> TensorId:
        return self._constants.constant(data.astype(np.float32), scale)
