"""The dequantized view of quantized models: integers are seen as the real numbers that they stand for.

Constants are dequantized where they are read. Activations are floats. Each operator's result is rounded to a value that
its integer type can hold (fake-quantize), so that the model has the accuracy that its authors measured. Model inputs
and outputs are converted on the device.

TFLite's kernels add biases to sums of products of integers, whatever scale is written beside them: it is that of the
input times that of the weights. Some writers leave the scale out, or write 1. TensorFlow's converter may share one bias
between two layers with different inputs, whose scales can only be right for one of them; the written scale is the
right one then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.ir import EpilogueOp, Value
from tflgpu.model.model import FileTensor, Operator, Subgraph
from tflgpu.model.sparsity import unpacked_nibbles
from tflgpu.model.tensor_info import Quantization

QUANTIZED_TYPES = ("int8", "uint8", "int16")

DOUBLES = 1 << 20  # elements of a constant, about, that are doubles at a time

LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Grid:
    """The real numbers that a quantized activation can hold: ``scale * (q - zero)`` for the integers q of ``dtype``."""

    dtype: str
    scale: float
    zero: float

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest q."""
        if self.dtype == "int4":
            return -8.0, 7.0
        limits = np.iinfo(self.dtype)
        return float(limits.min), float(limits.max)

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest of these numbers. Zero is always between them, whatever zero point a file has."""
        low, high = (self.scale * (q - self.zero) for q in self.limits)
        return min(low, 0.0), max(high, 0.0)

    def holds(self, least: float, greatest: float) -> bool:
        """Whether all numbers between two are in this grid's range, but for what it rounds.

        Args:
            least: The lower end.
            greatest: The upper end.
        """
        low, high = self.range
        return low - self.scale / 2 <= least and greatest <= high + self.scale / 2

    def same_numbers(self, other: Grid) -> bool:
        """Whether both can hold the same numbers: those of int8 and uint8, if zero points differ by 128.

        Args:
            other: Another grid.
        """
        ends = tuple(q - self.zero for q in self.limits)
        return self.scale == other.scale and ends == tuple(q - other.zero for q in other.limits)

    @property
    def outgrows_half(self) -> bool:
        """Whether half precision, with its 11 significant bits, cannot hold all these numbers."""
        return self.dtype == "int16"


# Operators that only copy values of their inputs: rounding the results again would change nothing.
KEEPS_QUANTA = frozenset(
    (
        "BATCH_TO_SPACE_ND",
        "BROADCAST_TO",
        "DEPTH_TO_SPACE",
        "DEQUANTIZE",
        "EMBEDDING_LOOKUP",
        "EXPAND_DIMS",
        "GATHER",
        "GATHER_ND",
        "MAX_POOL_2D",
        "MIRROR_PAD",
        "PAD",
        "RESHAPE",
        "RESIZE_NEAREST_NEIGHBOR",
        "REVERSE_V2",
        "SLICE",
        "SPACE_TO_BATCH_ND",
        "SPACE_TO_DEPTH",
        "SPLIT",
        "SPLIT_V",
        "SQUEEZE",
        "STRIDED_SLICE",
        "TILE",
        "TRANSPOSE",
        "UNPACK",
    )
)

# Operators whose results are elements of their inputs: those that are on the grid of the result stay on it.
CHOOSE_ELEMENTS = frozenset(
    (
        "CONCATENATION",
        "MAXIMUM",
        "MINIMUM",
        "PACK",
        "PADV2",
        "REDUCE_MAX",
        "REDUCE_MIN",
        "SELECT",
        "SELECT_V2",
    )
)

# Operators whose grid follows from the type of their result alone: what they compute is in its range up to rounding.
HAVE_FIXED_GRIDS = frozenset(("L2_NORMALIZATION", "LOGISTIC", "LOG_SOFTMAX", "SOFTMAX", "TANH"))

# Operators that compute nothing beyond the range of their inputs and zero.
STAY_IN_RANGE = CHOOSE_ELEMENTS | {
    "AVERAGE_POOL_2D",
    "MEAN",
    "QUANTIZE",
    "RELU",
    "RELU6",
    "RELU_0_TO_1",
    "RESIZE_BILINEAR",
    "WHERE",
}


# Operators whose kernels in LiteRT quantize float activations, row by row or by images, if weights are integers.
QUANTIZE_AT_RUN_TIME = frozenset(("CONV_2D", "FULLY_CONNECTED"))


def is_quantized(tensor: FileTensor) -> bool:
    """Whether the tensor's integers stand for real numbers. int32, int64 and int4 do so only in a constant.

    Args:
        tensor: A tensor of the file.
    """
    if tensor.blocks is not None:
        return True
    constant = tensor.dtype in ("int32", "int64", "int4") and tensor.data is not None
    return tensor.quantization is not None and (tensor.dtype in QUANTIZED_TYPES or constant)


def has_grid(tensor: FileTensor) -> bool:
    """Whether the numbers of a tensor lie on one grid, or on one for each index of an axis: not on those of blocks.

    Args:
        tensor: A tensor of the file.
    """
    return is_quantized(tensor) and tensor.blocks is None


def view_dtype(tensor: FileTensor) -> str:
    """Return the element type of a tensor in the dequantized view.

    Args:
        tensor: A tensor of the file.
    """
    return "float32" if is_quantized(tensor) else tensor.dtype


def dynamic_weights(subgraph: Subgraph) -> frozenset[int]:
    """Return the weights of dynamic range: LiteRT's kernels quantize at run time the floats that these multiply."""
    found = set[int]()
    for operator in subgraph.operators:
        if operator.code in QUANTIZE_AT_RUN_TIME and min(operator.inputs[:2]) >= 0:
            x, weights = (subgraph.tensors[t] for t in operator.inputs[:2])
            is_whole = weights.dtype in ("int4", "int8") and weights.data is not None and weights.blocks is None
            if x.dtype == "float32" and is_whole:
                found.add(weights.index)
    return frozenset(found)


def dequantized(tensor: FileTensor) -> NDArray[np.float32]:
    """Return ``scale * (q - zero_point)`` of a constant, as exactly as in double.

    Args:
        tensor: A quantized constant of the file.
    """
    assert tensor.data is not None
    data = unpacked_nibbles(tensor.data.view(np.uint8), tensor.shape) if tensor.dtype == "int4" else tensor.data
    if (blocks := tensor.blocks) is not None:
        return blocks.dequantized(data)
    numbers = np.empty(tensor.shape, np.float32)
    scale, zeros = scale_of(tensor), None
    if tensor.quantization is not None:
        zeros = _along_axis(tensor, tensor.quantization.zero_point)
    rows = max(1, DOUBLES * len(data) // max(1, data.size)) if data.ndim else 1
    with np.errstate(all="ignore"):  # an extreme scale gives infinities, as in any runtime
        for part in (slice(first, first + rows) for first in range(0, len(data), rows)) if data.ndim else ((),):
            whole = data[part].astype(np.float64)
            if zeros is not None:
                whole -= _of_rows(zeros, part)
            numbers[part] = _of_rows(scale, part) * whole
    return numbers


def _of_rows(numbers: NDArray[Any], part: slice | tuple[()]) -> NDArray[Any]:
    """Return some rows of an array that broadcasts to all rows."""
    return numbers[part] if numbers.ndim and len(numbers) > 1 else numbers


def scale_of(tensor: FileTensor) -> NDArray[Any]:
    """Return the scale of a constant, or one for each index of an axis, in a form that broadcasts to it.

    Those of equal blocks of a matrix are as they are, one for each block, and of other blocks one for each element.

    Args:
        tensor: A quantized constant of the file.
    """
    if (blocks := tensor.blocks) is not None:
        length = tensor.shape[-1]
        are_whole = blocks.scales.ndim == 2 and length % blocks.size == 0
        return blocks.scales if are_whole else blocks.of_elements(blocks.scales, length)
    assert tensor.quantization is not None
    return _along_axis(tensor, tensor.quantization.scale).astype(np.float64)


def _along_axis(tensor: FileTensor, numbers: Sequence[float]) -> NDArray[Any]:
    """One number for the whole of a constant, or one for each index of the axis that its quantization has."""
    assert tensor.quantization is not None
    shape = [1] * len(tensor.shape)
    if len(numbers) > 1:
        shape[tensor.quantization.axis] = len(numbers)
    return np.reshape(numbers, shape)


def grid_of(tensor: FileTensor) -> Grid:
    """Return the grid of a quantized activation, which has one scale and zero point.

    Quantizers give one that was always zero a scale of 0, or of a denormal float, by which no device divides.

    Args:
        tensor: A quantized activation of the file.
    """
    assert tensor.quantization is not None
    scale, zero = tensor.quantization.scale[0], tensor.quantization.zero_point[0]
    return Grid(tensor.dtype, max(scale, LEAST_SCALE), float(zero))


# Least and greatest results of fused activations, by their numbers in the schema (ActivationFunctionType).
ACTIVATION_RANGES = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0), 4: (-1.0, 1.0)}


def clamps(operator: Operator, inputs: Iterable[FileTensor], result: FileTensor) -> bool:
    """Whether the integers of a result clamp what an operator computes.

    Converters leave out an activation such as RELU6 if the range of the grid is that of the activation.

    Args:
        operator: The operator.
        inputs: Its inputs.
        result: Its quantized output.
    """
    if operator.code in KEEPS_QUANTA or operator.code in HAVE_FIXED_GRIDS:
        return False
    grid = grid_of(result)
    limits = ACTIVATION_RANGES.get(operator.options.get("fused_activation_function", 0), ACTIVATION_RANGES[0])
    if np.isfinite(limits).all():
        return not grid.holds(*limits)
    floats = [t for t in inputs if view_dtype(t) == "float32"]
    return operator.code not in STAY_IN_RANGE or not all(has_grid(t) and grid.holds(*grid_of(t).range) for t in floats)


def dequantize_op(grid: Grid) -> EpilogueOp:
    """From the integers of the grid to real numbers."""
    return EpilogueOp("dequantize", (Value(0),), (grid.scale, grid.zero))


def quantize_op(grid: Grid) -> EpilogueOp:
    """From real numbers to the integers of the grid."""
    return EpilogueOp("quantize", (Value(0),), (grid.scale, grid.zero, *grid.limits))


def fake_quantize_op(grid: Grid) -> EpilogueOp:
    """From real numbers to the nearest ones on the grid, within the range of its integer type."""
    return EpilogueOp("fake_quantize", (Value(0),), (grid.scale, grid.zero, *grid.limits))


def requantize_op(source: Grid, grid: Grid) -> EpilogueOp:
    """Return the op from the numbers of one grid to the nearest ones of another, as exactly as integers would do it.

    Args:
        source: The grid of the op's operand.
        grid: The grid of its result.
    """
    with np.errstate(all="ignore"):
        ratio = np.float64(source.scale) / grid.scale
        first = np.float32(ratio)
    if not np.isfinite(first):
        return fake_quantize_op(grid)
    parameters = (grid.scale, grid.zero, *grid.limits, source.scale, float(first), float(ratio - first))
    return EpilogueOp("requantize", (Value(0),), parameters)


def clamp_op(grid: Grid) -> EpilogueOp:
    """From real numbers to the nearest ones within the range of the grid, without rounding."""
    return EpilogueOp("clamp", (Value(0),), grid.range)


def hold_op(operator: Operator, inputs: Iterable[FileTensor], result: FileTensor, rounds: bool) -> EpilogueOp | None:
    """Return the op by which the integers of a result change what an operator computes; None if they change nothing.

    Args:
        operator: The operator.
        inputs: Its inputs.
        result: Its output.
        rounds: Whether to fake-quantize; else the op only clamps.
    """
    if not is_quantized(result):
        return None
    grid = grid_of(result)
    if not rounds:
        return clamp_op(grid) if clamps(operator, inputs, result) else None
    if operator.code in KEEPS_QUANTA:
        return None
    inputs = tuple(inputs)
    chooses = operator.code in CHOOSE_ELEMENTS and not operator.options.get("fused_activation_function", 0)
    if chooses or operator.code == "QUANTIZE":
        floats = [t for t in inputs if view_dtype(t) == "float32"]
        if floats and all(has_grid(t) and grid_of(t).same_numbers(grid) for t in floats):
            return None
    sources = [grid_of(t) for t in inputs if has_grid(t)] if operator.code == "QUANTIZE" else []
    return requantize_op(sources[0], grid) if sources else fake_quantize_op(grid)


# The inputs of a layer that are its image, its weights and its bias, and the axis of the weights with its outputs.
BIASED_OPERANDS = {
    "CONV_2D": (0, 1, 2, 0),
    "DEPTHWISE_CONV_2D": (0, 1, 2, 3),
    "FULLY_CONNECTED": (0, 1, 2, 0),
    "TRANSPOSE_CONV": (2, 1, 3, 0),
}

SAME_SCALE = 1e-5  # relative difference of scales that are equal but for their rounding to floats


@dataclass(frozen=True)
class Use:
    """A constant bias of integers in a layer of integers. product: the scales of its sums, one or one a channel."""

    operator: int
    bias: FileTensor
    product: NDArray[np.float64]

    @property
    def is_as_written(self) -> bool:
        """Whether the scales in the file are those of the sums."""
        written = self.bias.quantization
        if written is None or len(written.scale) not in (1, self.bias.size):
            return False
        return bool(np.all(np.abs(np.array(written.scale) - self.product) <= SAME_SCALE * np.abs(self.product)))

    @property
    def in_sums(self) -> FileTensor:
        """The bias with the scales of the sums."""
        scales = tuple(self.product.tolist())
        return replace(self.bias, quantization=Quantization(scales, (0,) * len(scales)))


def biases_of_sums(subgraph: Subgraph) -> Mapping[int, FileTensor]:
    """Return what operators have as their bias in place of the file's tensor, by the operators' indices.

    A written scale that is right for one of the layers that share a bias is believed in all of them.
    """
    uses = [*_uses(subgraph)]
    believed = {use.bias.index for use in uses if use.is_as_written}
    return {use.operator: use.in_sums for use in uses if use.bias.index not in believed}


def biases_of_one_layer(subgraph: Subgraph) -> frozenset[int]:
    """Return the operators whose bias has a written scale that is not theirs, but that of another layer with the same
    bias."""
    uses = [*_uses(subgraph)]
    believed = {use.bias.index for use in uses if use.is_as_written}
    return frozenset(use.operator for use in uses if use.bias.index in believed and not use.is_as_written)


def bias_position(operator: Operator) -> int:
    """Which input of a layer is its bias."""
    return BIASED_OPERANDS[operator.code][2]


def _uses(subgraph: Subgraph) -> Iterator[Use]:
    for operator in subgraph.operators:
        image, weights, bias, axis = BIASED_OPERANDS.get(operator.code, (0, 0, len(operator.inputs), 0))
        if len(operator.inputs) <= bias or operator.inputs[bias] < 0:
            continue
        x, w, b = (subgraph.tensors[operator.inputs[place]] for place in (image, weights, bias))
        if b.data is None or b.dtype not in ("int32", "int64") or x.dtype not in QUANTIZED_TYPES:
            continue
        if x.quantization is None or not has_grid(w) or w.quantization is None:
            continue
        scales = w.quantization.scale
        if len(scales) == 1 or (w.quantization.axis == axis and len(scales) == b.size):
            yield Use(operator.index, b, x.quantization.scale[0] * np.array(scales))


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
