"""Operators of nothing but constants that the lowering computes itself. Their results are weights and shapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.model.model import Operator
from tflgpu.ops import Site

EVALUATORS: dict[str, Callable[..., Array]] = {
    "DENSIFY": lambda x: x,  # into a variable: any other result is a constant of the subgraph
    "DEQUANTIZE": lambda x: x.astype(np.float32),
}


def evaluated(operator: Operator, site: Site) -> Array | None:
    """Return the result of an operator whose inputs are all constants, if there is an evaluator for it."""
    values = [site.constant(i) for i in range(len(site.inputs))]
    evaluator = EVALUATORS.get(operator.code)
    if evaluator is None or len(operator.outputs) != 1 or not values or any(v is None for v in values):
        return None
    if any(t is None or t.dtype not in ("float16", "float32") for t in site.inputs):
        return None
    return evaluator(*values)
