"""Sums of integers are multiplied by a scale for each channel, which may just as well be divided by that of the result.

Then the epilogue need not divide each result before it rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Node, Tensor, TensorId
from tflgpu.kernels.epilogue_scales import without_division
from tflgpu.kernels.integers import INTEGERS
from tflgpu.kernels.integers.integer_products import multiplies_integers
from tflgpu.kernels.rewriting import Planning


@INTEGERS.rewrite("replace")
def divide_scales(planning: Planning) -> Planning:
    """Products of integers: ``round(f(x, w, bias) / scale)`` becomes ``round(f(x, w / scale, bias / scale))``."""
    fresh, tensors = planning.graph.fresh_ids(), list[Tensor]()
    nodes = [_divided(planning, node, fresh, tensors) for node in planning.graph.nodes]
    return planning.with_nodes(nodes, tensors)


def _divided(planning: Planning, node: Node, fresh: Iterator[TensorId], tensors: list[Tensor]) -> Node:
    if node.kind not in ("convolution", "fully_connected") or not multiplies_integers(planning.request(node)):
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
