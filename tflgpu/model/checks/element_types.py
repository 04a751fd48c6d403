"""Element types that LiteRT's kernels go by for all their tensors, without a look at whether they agree."""

from __future__ import annotations

from tflgpu.errors import ModelError
from tflgpu.model.model import FileTensor, Operator, Subgraph

FLOATS = ("float16", "float32", "float64")

# One type picks the kernel, which then reads and writes memory as if both tensors had it. A SOFTMAX of integers may
# have wider ones as its result.
ALIKE = {"MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"}
BOTH_FLOAT = {"LOG_SOFTMAX", "SOFTMAX"}

# The handle of a variable among the inputs, or the outputs.
HANDLES = {"VAR_HANDLE": "outputs", "READ_VARIABLE": "inputs", "ASSIGN_VARIABLE": "inputs"}


def check_element_types(subgraph: Subgraph) -> None:
    """Raises ModelError for element types by which LiteRT's kernels would read what is not there."""
    for operator in subgraph.operators:
        if not operator.is_custom:
            _check(operator, [[subgraph.tensors[t] for t in each[:1]] for each in (operator.inputs, operator.outputs)])


def _check(operator: Operator, sides: list[list[FileTensor]]) -> None:
    where, code = f"operator {operator.index} {operator.code}", operator.code
    given, result = ([tensor.dtype for tensor in side] for side in sides)
    if code in ALIKE and given != result:
        raise ModelError(f"{where} makes {result[0]} of {given[0]}; one element type was expected")
    if code in BOTH_FLOAT and (given[0] in FLOATS) != (result[0] in FLOATS):
        raise ModelError(f"{where} makes {result[0]} of {given[0]}; both integers or both floats were expected")
    if code == "DEQUANTIZE" and result[0] not in FLOATS:
        raise ModelError(f"{where} makes {result[0]}; floats were expected")
    if code in HANDLES and (handle := given if HANDLES[code] == "inputs" else result) != ["resource"]:
        raise ModelError(f"{where} takes a tensor of {handle[0]} for the handle of a variable")
