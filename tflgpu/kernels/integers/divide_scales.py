"""Sums of integers are multiplied by a scale for each channel, which may just as well be divided by that of the result.

Then the epilogue need not divide each result before it rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Node, Tensor, TensorId
from tflgpu.kernels.epilogue_scales import without_division
from tflgpu.kernels.integers import INTEGERS
from tflgpu.kernels.integers.integer_depthwise import sums_are_exact
from tflgpu.kernels.integers.integer_products import multiplies_integers
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning

# Kinds of nodes whose kernels may multiply sums of integers, and whether one does.
HAVE_FACTORS: Mapping[str, Callable[[Request], bool]] = {
    "convolution": multiplies_integers,
    "depthwise": sums_are_exact,
    "fully_connected": multiplies_integers,
}


@INTEGERS.rewrite("replace")
def divide_scales(planning: Planning) -> Planning:
    """Products of integers: ``round(f(x, w, bias) / scale)`` becomes ``round(f(x, w / scale, bias / scale))``."""
    fresh, tensors = planning.graph.fresh_ids(), list[Tensor]()
    nodes = [_divided(planning, node, fresh, tensors) for node in planning.graph.nodes]
    return planning.with_nodes(nodes, tensors)


def _divided(planning: Planning, node: Node, fresh: Iterator[TensorId], tensors: list[Tensor]) -> Node:
    if node.kind not in HAVE_FACTORS or not HAVE_FACTORS[node.kind](planning.request(node)):
        return node
    epilogue, divisor = without_division(node.epilogue)
    if divisor == 1.0:
        return node
    graph, inputs = planning.graph, list(node.inputs)
    for index in (1, 2) if len(inputs) > 2 and 2 not in node.epilogue_inputs else (1,):
        old = graph[inputs[index]]
        assert old.data is not None
        scale = None if old.scale is None else np.asarray(old.scale, np.float64) / divisor
        tensors.append(replace(old, id=next(fresh), data=(old.data / divisor).astype(np.float32), scale=scale))
        inputs[index] = tensors[-1].id
    return replace(node, inputs=tuple(inputs), epilogue=epilogue)
