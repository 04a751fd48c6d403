"""Element types that LiteRT's kernels go by for all their tensors, without a look at whether they agree."""

from __future__ import annotations

from tflgpu.errors import ModelError
from tflgpu.model.model import Subgraph

FLOATS = ("float16", "float32", "float64")

# One type picks the kernel, which then reads and writes memory as if both tensors had it. A SOFTMAX of integers may
# have wider ones as its result.
ALIKE = {"MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"}
BOTH_FLOAT = {"LOG_SOFTMAX", "SOFTMAX"}

# Operators whose first input is the handle of a variable.
OF_HANDLES = {"ASSIGN_VARIABLE", "READ_VARIABLE"}


def check_element_types(subgraph: Subgraph) -> None:
    """Raise ModelError for element types by which LiteRT's kernels would read what is not there."""
    for operator in subgraph.operators:
        if not operator.is_custom:
            given, result = (
                next((subgraph.tensors[t].dtype for t in side), "nothing")
                for side in (operator.inputs, operator.outputs)
            )
            _check(f"operator {operator.index} {operator.code}", operator.code, given, result)


def _check(where: str, code: str, given: str, result: str) -> None:
    """given, result: element types of the first input and output."""
    if code in ALIKE and given != result:
        raise ModelError(f"{where} makes {result} of {given}; one element type was expected")
    if code in BOTH_FLOAT and (given in FLOATS) != (result in FLOATS):
        raise ModelError(f"{where} makes {result} of {given}; both integers or both floats were expected")
    if code == "DEQUANTIZE" and result not in FLOATS:
        raise ModelError(f"{where} makes {result}; floats were expected")
    handle = result if code == "VAR_HANDLE" else given if code in OF_HANDLES else "resource"
    if handle != "resource":
        raise ModelError(f"{where} takes a tensor of {handle} for the handle of a variable")
