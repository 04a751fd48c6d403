"""Whether a device's answer is right: the tolerances that the conformance data's README.md suggests.

Nothing here depends on how the answer was computed; the model is read only to count the terms of its longest sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tests.conformance.cases import Array, Case
from tflgpu.model.model import Operator, Subgraph
from tflgpu.model.reader import read_model

Precision = Literal["fp32", "fp16"]
Floats = NDArray[np.float64]

QUANTIZED = ("int8", "int16", "uint8")
HALF_LARGEST = float(np.finfo(np.float16).max)
HALF_SMALLEST_NORMAL = float(np.finfo(np.float16).smallest_normal)

CONVERSIONS = frozenset(("QUANTIZE", "DEQUANTIZE"))
COMPARISONS = frozenset(("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"))
# Operators that copy elements. A comparison can only decide which, and a float comparison has one right answer.
MOVEMENT = COMPARISONS | frozenset(
    (
        "BATCH_TO_SPACE_ND",
        "BROADCAST_TO",
        "CONCATENATION",
        "DEPTH_TO_SPACE",
        "GATHER",
        "GATHER_ND",
        "MIRROR_PAD",
        "PACK",
        "PAD",
        "PADV2",
        "RESHAPE",
        "RESIZE_NEAREST_NEIGHBOR",
        "REVERSE_V2",
        "SELECT",
        "SELECT_V2",
        "SLICE",
        "SPACE_TO_BATCH_ND",
        "SPACE_TO_DEPTH",
        "SPLIT",
        "SPLIT_V",
        "STRIDED_SLICE",
        "TILE",
        "TRANSPOSE",
        "UNPACK",
    )
)
# On integers, these operators only copy or choose, too; the CPU's kernels agree on every bit.
INTEGER_MOVEMENT = MOVEMENT | CONVERSIONS | frozenset(("MAX_POOL_2D", "RELU", "RELU6", "RELU_N1_TO_1"))

# Cases whose fused clamp hides how large the sums were.
CLAMPED = ("conv_relu1.zip", "conv_relu6.zip")


def judge(case: Case, got: Sequence[Array], precision: Precision) -> str | None:
    """None if every output is right, else what is wrong with the first one that is not."""
    if len(got) != len(case.expected):
        return f"{len(got)} outputs, not {len(case.expected)}"
    for i, (answer, expected) in enumerate(zip(got, case.expected, strict=True)):
        if fault := compare(answer, expected, allowed_error(case, i, precision)):
            return f"output {i}: {fault}"
    return None


def allowed_error(case: Case, output: int, precision: Precision) -> Floats | None:
    """Largest right |got - expected| of each element of an output; None where the bits must be equal.

    Infinity marks an element that is not judged.
    """
    expected = case.expected[output]
    if case.kind in QUANTIZED:
        return _quantized(case, expected, case.quanta[output])
    if expected.dtype.kind != "f":
        return None
    size = np.abs(np.nan_to_num(expected.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    if case.kind == "dynamic-range":
        return np.full_like(size, 2e-2 * size.max(initial=0.0))
    if precision == "fp16":
        return _half(size)
    if set(case.operators) <= MOVEMENT:
        return None
    return _single(size, summed_terms(case.model)) * (10.0 if case.zip in CLAMPED else 1.0)


def _quantized(case: Case, expected: Array, quantum: float | None) -> Floats | None:
    """Quanta where there are any; a float output has the rounding of its DEQUANTIZE beside them."""
    if quantum is None:
        return None
    quanta = 2.0 if "RESIZE_BILINEAR" in case.operators else 1.0
    if expected.dtype.kind == "f":
        # Also of data movement: the QUANTIZE before it rounds, and the CPU's own kernels differ where that is a tie.
        return np.full(expected.shape, 1.01 * quanta * quantum)
    if set(case.operators) <= INTEGER_MOVEMENT:
        return None
    return np.full(expected.shape, quanta * quantum)


def _single(size: Floats, terms: int) -> Floats:
    largest = float(size.max(initial=0.0))
    return (1e-5 * max(1.0, largest) + 1e-5 * size) * max(1.0, terms / 64)


def _half(size: Floats) -> Floats:
    """Values beyond half precision's range are not judged, and do not excuse the others."""
    skipped = size > HALF_LARGEST
    largest = np.where(skipped, 0.0, size).max(initial=0.0)
    return np.where(skipped, np.inf, 2e-2 * max(largest, HALF_SMALLEST_NORMAL))


def compare(got: Array, expected: Array, allowed: Floats | None) -> str | None:
    """None if ``got`` is right, else how many elements are wrong and the worst of them.

    NaN belongs exactly where it was expected, and an infinity by its sign; ``allowed`` is for the finite elements.
    """
    if got.dtype != expected.dtype:
        return f"element type {got.dtype}, not {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {list(got.shape)}, not {list(expected.shape)}"
    if expected.size == 0:
        return None
    g, e = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf; infinities that agree are settled by the equality
        error = np.where(g == e, 0.0, np.abs(g - e))
    if allowed is None:
        right = _same_bits(got, expected)
        allowed = np.zeros(expected.shape)
    else:
        right = np.where(np.isfinite(e), error <= allowed, g == e)
    right |= np.isnan(e) & np.isnan(g)
    if right.all():
        return None
    excess = np.where(right, -1.0, np.nan_to_num(error - allowed, nan=np.inf))
    worst = np.unravel_index(excess.argmax(), excess.shape)
    return (
        f"{(~right).sum()} of {right.size} elements are wrong, worst at {list(map(int, worst))}: "
        f"got {got[worst]:.9g}, expected {expected[worst]:.9g}, error {error[worst]:.3g}, allowed {allowed[worst]:.3g}"
    )


def _same_bits(got: Array, expected: Array) -> NDArray[np.bool_]:
    """Unlike ``==``, this tells 0.0 from -0.0."""
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    same: NDArray[np.bool_] = np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(expected).view(bits)
    return same.reshape(expected.shape)


def summed_terms(model: bytes) -> int:
    """Number of terms of the longest sum that any operator of the model forms; 1 if none does."""
    (graph,) = read_model(model).subgraphs
    return max((SUMS[o.code](o, graph) for o in graph.operators if o.code in SUMS), default=1)


def _input(o: Operator, graph: Subgraph, position: int) -> tuple[int, ...]:
    return graph.tensors[o.inputs[position]].shape


def _filter(o: Operator, graph: Subgraph) -> int:
    """Products of a sum, by weights [outputs, height, width, inputs]."""
    return prod(_input(o, graph, 1)[1:])


def _depthwise_filter(o: Operator, graph: Subgraph) -> int:
    """Products of a sum, by weights [1, height, width, channels]."""
    return prod(_input(o, graph, 1)[1:3])


def _rows(o: Operator, graph: Subgraph) -> int:
    """Products of a sum, by weights [outputs, inputs]."""
    return _input(o, graph, 1)[-1]


def _matrices(o: Operator, graph: Subgraph) -> int:
    return _input(o, graph, 0)[-2 if o.options["adj_x"] else -1]


def _window(o: Operator, graph: Subgraph) -> int:
    return int(o.options["filter_height"] * o.options["filter_width"])


def _reduced(o: Operator, graph: Subgraph) -> int:
    """Elements that become one; a reduction of nothing sums nothing."""
    return prod(_input(o, graph, 0)) // max(1, prod(graph.tensors[o.outputs[0]].shape))


def _last_axis(o: Operator, graph: Subgraph) -> int:
    return _input(o, graph, 0)[-1]


def _neighbours(o: Operator, graph: Subgraph) -> int:
    return 2 * int(o.options["radius"]) + 1


def _gate(o: Operator, graph: Subgraph) -> int:
    """Products of a gate's sum, by weights [units, inputs] for the step's input and [units, units] for the state before
    it.
    """
    input_to_forget, recurrent_to_forget = 2, 6
    return _input(o, graph, input_to_forget)[1] + _input(o, graph, recurrent_to_forget)[1]


SUMS: Mapping[str, Callable[[Operator, Subgraph], int]] = {
    "AVERAGE_POOL_2D": _window,
    "BATCH_MATMUL": _matrices,
    "CONV_2D": _filter,
    "DEPTHWISE_CONV_2D": _depthwise_filter,
    "FULLY_CONNECTED": _rows,
    "L2_NORMALIZATION": _last_axis,
    "LOCAL_RESPONSE_NORMALIZATION": _neighbours,
    "LOG_SOFTMAX": _last_axis,
    "MEAN": _reduced,
    "SOFTMAX": _last_axis,
    "SUM": _reduced,
    "TRANSPOSE_CONV": _filter,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _gate,
}
