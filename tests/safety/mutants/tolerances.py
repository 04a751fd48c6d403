"""How near to LiteRT's answer tflgpu's has to be, and where it need not be near at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tests.conformance.cases import Array
from tests.safety.mutants.edits import unpack
from tflgpu.model.model import Model, Operator, Subgraph
from tflgpu.model.tensor_info import Quantization

RANDOM = {"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"}
MANY_LAYERS = 8  # of integers: each rounds, and the next multiplies what comes of it
EXP_SCALE = 88 / 2**15  # of 16 bits: e**88 is near the largest number
HYBRID = {"BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"}
LARGEST = float(np.finfo(np.float32).max)
LONGEST_POWER = 31  # an exponent beyond it overflows for every base but -1, 0 and 1
GREATEST_SLOPE = 2.0**30  # LiteRT shifts integers by as many bits
TERMS = 256  # of the longest sum, where models are as small as those that are damaged


def allowed_error(model: Model, expected: Array, largest: float) -> NDArray[np.float64] | None:
    """The conformance tolerances, for outputs of any model; None where the bits must be equal.

    largest: finite number in any tensor, which the output may be a small difference of.
    """
    quantum = max(_scales(model), default=0.0)
    if expected.dtype.kind != "f":
        return np.full(expected.shape, 1.0) if quantum and expected.dtype in (np.int8, np.uint8, np.int16) else None
    size = np.abs(np.nan_to_num(expected.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    return 1e-5 * (max(1.0, largest) * TERMS / 64 + size) + 1.01 * quantum


def known_difference(data: bytes, model: Model, largest: float) -> str:
    """Why tflgpu's answer may be another one than LiteRT's; empty if it may not. largest: as for the error."""
    operators = [operator for graph in model.subgraphs for operator in graph.operators]
    codes = {operator.code for operator in operators}
    fused = {o.options.get("fused_activation_function", 0) for o in operators if "LSTM" not in o.code}
    quantized = any(_scales(model))
    reasons = {
        "random numbers": codes & RANDOM,
        "LiteRT clamps what overflows to the largest number": largest >= LARGEST,
        "LiteRT leaves a fused TANH or SIGN_BIT out": not fused <= {0, 1, 2, 3},
        "LiteRT leaves an LSTM's result where it was if it has no activation": any(
            "LSTM" in o.code and o.options.get("fused_activation_function", 0) == 0 for o in operators
        ),
        "LiteRT rounds the inputs of layers with float inputs and integer weights": _is_hybrid(model),
        "LiteRT's ellipsis stands for at least one axis": any(o.options.get("ellipsis_mask") for o in operators),
        "LiteRT keeps what the file has for an input": _holds_an_input(data),
        "LiteRT's plain kernels leave images out of a TRANSPOSE_CONV, XNNPACK does not": _has_more_images(model),
        "LiteRT rounds positions in integers to 1/1024 of a pixel": any(o.code == "RESIZE_BILINEAR" for o in operators)
        and quantized,
        "a slope of integers beyond their multipliers": quantized
        and not all(abs(o.options.get("alpha", 0)) < GREATEST_SLOPE for o in operators),
        "LiteRT's ATAN2 has the shape of its first input": "ATAN2" in codes,
        "LiteRT's table of EXP holds no numbers where they overflow": "EXP" in codes
        and max(_scales(model), default=0) > EXP_SCALE,
        "what a quantized LSTM rounds on its way": quantized and any("LSTM" in code for code in codes),
        "the rounding of many quantized layers": quantized and len(operators) >= MANY_LAYERS,
        "LiteRT gives what the memory held where a slice drops an axis oddly": _drops_axes_oddly(model),
        "whole powers wrap around, or become the least number": "POW" in codes
        and any((np.abs(data.astype(np.int64)) > LONGEST_POWER).any() for data in _constants(model, "i")),
        "LiteRT's clips of an LSTM turn NaN into numbers": any("LSTM" in code for code in codes)
        and not all(np.isfinite(data).all() for data in _constants(model, "f")),
        "LiteRT takes 0 for the scale of an image that has one for each channel": _has_channels_for_an_image(model),
        "zero points of channels, which the format forbids": any(
            len(q.scale) > 1 and any(q.zero_point) for q in _quantizations(model)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _holds_an_input(data: bytes) -> bool:
    file = unpack(data)
    main = file.subgraphs[0]
    held = (file.buffers[main.tensors[index].buffer].data for index in main.inputs)
    return any(data is not None and len(data) for data in held)


def _drops_axes_oddly(model: Model) -> bool:
    """Whether a STRIDED_SLICE drops an axis, of which it takes a place that is not there or goes backwards."""
    for graph in model.subgraphs:
        for operator in graph.operators:
            dropped = operator.options.get("shrink_axis_mask", 0)
            begins, _, strides = (graph.tensors[t].data for t in operator.inputs[1:4]) if dropped else (None,) * 3
            if begins is None or strides is None:
                continue
            axes = zip(graph.tensors[operator.inputs[0]].shape, begins.flat, strides.flat, strict=False)
            for i, (size, begin, stride) in enumerate(axes):
                if dropped >> i & 1 and (stride < 0 or not -size <= begin < size):
                    return True
    return False


def _has_channels_for_an_image(model: Model) -> bool:
    return any(
        operator.code in HYBRID and (grid := graph.tensors[operator.inputs[0]].quantization) and len(grid.scale) > 1
        for graph in model.subgraphs
        for operator in graph.operators
    )


def _has_more_images(model: Model) -> bool:
    """Whether a TRANSPOSE_CONV has another batch in its output shape than in its image."""
    for graph in model.subgraphs:
        for operator in graph.operators:
            if operator.code == "TRANSPOSE_CONV":
                shape, _, image = (graph.tensors[t] for t in operator.inputs[:3])
                if shape.data is not None and tuple(shape.data[:1]) != image.shape[:1]:
                    return True
    return False


def _constants(model: Model, kind: str) -> Iterator[Array]:
    """kind: of numpy's element types."""
    tensors = (tensor for graph in model.subgraphs for tensor in graph.tensors)
    yield from (tensor.data for tensor in tensors if tensor.data is not None and tensor.data.dtype.kind == kind)


def _quantizations(model: Model) -> Iterator[Quantization]:
    tensors = (tensor for graph in model.subgraphs for tensor in graph.tensors)
    yield from (tensor.quantization for tensor in tensors if tensor.quantization)


def _is_hybrid(model: Model) -> bool:
    return any(
        operator.code in HYBRID and _dtype(graph, operator, 0) == "float32" and _dtype(graph, operator, 1) == "int8"
        for graph in model.subgraphs
        for operator in graph.operators
    )


def _dtype(graph: Subgraph, operator: Operator, position: int) -> str:
    known = len(operator.inputs) > position and operator.inputs[position] >= 0
    return graph.tensors[operator.inputs[position]].dtype if known else ""


def _scales(model: Model) -> Iterator[float]:
    """Scales of activations."""
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.quantization and tensor.data is None:
                yield from (abs(scale) for scale in tensor.quantization.scale if np.isfinite(scale))
