"""Options of builtin operators that LiteRT's kernels count by, without a look at what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tflgpu.errors import ModelError

# Options that repeat how many inputs or outputs there are.
OUTPUT_COUNTS = {"SPLIT": "num_splits", "SPLIT_V": "num_splits", "UNPACK": "num"}
INPUT_COUNTS = {"PACK": "values_count"}


def check_option_values(
    where: str, code: str, options: Mapping[str, Any], inputs: Sequence[int], outputs: Sequence[int]
) -> None:
    """Accept options that do not contradict the operator.

    Args:
        where: The operator's index and code, for the message.
        code: The operator's.
        options: By name.
        inputs: Tensors; -1 for absent ones.
        outputs: Tensors.

    Raises:
        ModelError: They do.
    """
    for counts, what, tensors in ((OUTPUT_COUNTS, "outputs", outputs), (INPUT_COUNTS, "inputs", inputs)):
        told = options.get(counts[code], 0) if code in counts else len(tensors)
        if told != len(tensors):
            raise ModelError(f"{where} has {len(tensors)} {what}, but its option {counts[code]} is {told}")
    if code == "LOCAL_RESPONSE_NORMALIZATION" and options.get("radius", 0) < 0:
        raise ModelError(f"{where} has the radius {options['radius']}; 0 or more was expected")
