"""Element types that LiteRT's kernels go by for all their tensors, without a look at whether they agree."""

from __future__ import annotations

from tflgpu.errors import ModelError
from tflgpu.model.model import Subgraph

FLOATS = ("float16", "float32", "float64")

# One type picks the kernel, which then reads and writes memory as if both tensors had it.
ALIKE = {"LOG_SOFTMAX", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SOFTMAX", "SUM"}


def check_element_types(subgraph: Subgraph) -> None:
    """Raises ModelError if only one of an operator's first input and output has floats, and both must."""
    for operator in subgraph.operators:
        if operator.code in ALIKE and not operator.is_custom:
            given, result = (subgraph.tensors[each[0]].dtype for each in (operator.inputs, operator.outputs))
            if (given in FLOATS) != (result in FLOATS):
                raise ModelError(
                    f"operator {operator.index} {operator.code} makes {result} of {given}; "
                    "both integers or both floats were expected"
                )
