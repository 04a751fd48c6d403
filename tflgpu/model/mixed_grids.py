"""Files that mix floats and integers, or integers of several grids, as no converter does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tflgpu.model.model import FileTensor, Operator
from tflgpu.model.quantization import KEEPS_QUANTA, is_quantized, view_dtype

# Operators that take integers and give floats, or the reverse.
CONVERSIONS = frozenset(("DEQUANTIZE", "NumericVerify", "QUANTIZE", "TFLite_Detection_PostProcess"))

# A mean of integers is as much of their number as they are.
ONE_GRID = KEEPS_QUANTA | {"AVERAGE_POOL_2D"}


def mixture_reasons(operator: Operator, tensors: Sequence[FileTensor]) -> Iterator[str]:
    """Yield obstacles in the grids of what an operator takes and gives at run time: LiteRT's kernels see bare integers.

    Args:
        operator: The operator.
        tensors: All tensors of its subgraph.
    """
    given = [tensors[t] for t in operator.inputs if t >= 0 and tensors[t].data is None]
    for result in (tensors[t] for t in operator.outputs):
        numbers = [t for t in (*given, result) if view_dtype(t) == "float32"]
        types = sorted({t.dtype for t in numbers})
        if operator.code not in CONVERSIONS and result in numbers and "float32" in types and len(types) > 1:
            yield f"it mixes {' and '.join(types)} without a conversion"
        elif operator.code in ONE_GRID and len({(t.dtype, t.quantization) for t in numbers if is_quantized(t)}) > 1:
            yield "it takes integers as they are, which stand for other numbers in its result than in its input"
