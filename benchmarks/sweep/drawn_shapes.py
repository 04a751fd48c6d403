"""Shapes of the heavy operators, drawn at random: as networks have them, and the extremes that some have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, log, prod

import numpy as np
from numpy.typing import NDArray

Random = np.random.Generator
Extents = tuple[int, ...]

# The most that a drawn operator may have: elements of a tensor, multiply-adds.
ELEMENTS = 1 << 22
MACS = 1 << 31

# Axes, shapes of outputs and the like are constants as they are; weights are shapes, for random numbers.
Constant = Extents | NDArray[np.int32]


@dataclass(frozen=True)
class Drawn:
    """One operator.

    inputs: shapes of its activations. constants: in the order of the file, behind the activations, but where
    ``constants_first`` says otherwise. result: the shape of its output. macs: multiply-adds. steps: that have to wait
    for each other.
    """

    code: str
    inputs: tuple[Extents, ...]
    constants: tuple[Constant, ...]
    result: Extents
    options: Mapping[str, object]
    macs: int = 0
    steps: int = 1
    constants_first: bool = False
    result_type: str = "float32"
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        weights = (shape for shape in self.constants if isinstance(shape, tuple))
        most = max(map(prod, (*self.inputs, self.result, *weights)))
        return prod(self.result) > 0 and most <= ELEMENTS and self.macs <= MACS

    @property
    def elements(self) -> tuple[int, int]:
        """Elements of inputs and weights, and of the result."""
        weights = (shape for shape in self.constants if isinstance(shape, tuple))
        return sum(map(prod, (*self.inputs, *weights))), prod(self.result)

    @property
    def title(self) -> str:
        """Its shapes, in words."""
        shapes = [" x ".join(map(str, shape)) for shape in self.inputs]
        extra = [f"{name} {value}" for name, value in self.details.items()]
        return f"{self.code} {', '.join(shapes)} -> {' x '.join(map(str, self.result))}; {'; '.join(extra)}".strip("; ")


def between(random: Random, low: int, high: int) -> int:
    """A whole number, its logarithm uniform."""
    return round(exp(random.uniform(log(low), log(high))))


def _window(random: Random, channels: int) -> tuple[Extents, Extents, int, int]:
    """An image, a kernel, a stride and a dilation, of one of the kinds that networks have."""
    kind = random.choice(["usual", "usual", "long", "large", "dilated"])
    stride = dilation = 1
    if kind == "long":
        kernel = (1, between(random, 8, 1024))
        image = (between(random, 1, 16), between(random, 16, 16384))
        if random.random() < 0.5:
            kernel, image = kernel[::-1], image[::-1]
    else:
        side = between(random, 2, 32) if kind == "large" else int(random.choice([1, 3, 3, 5, 7]))
        kernel = (side, side)
        image = (between(random, 1, 256), between(random, 1, 256))
        if kind == "dilated":
            dilation = between(random, 2, 64)
        elif random.random() < 0.3:
            stride = 2
    return (1, *image, channels), kernel, stride, dilation


def _result(image: Extents, kernel: Extents, stride: int, dilation: int, padding: str) -> Extents:
    """Empty if the window is larger than the image."""
    places = [extent - dilation * (side - 1) for extent, side in zip(image, kernel, strict=True)]
    if min(places) < 1:
        return 0, 0
    return tuple(-(-extent // stride) for extent in (image if padding == "SAME" else places))


def _window_options(padding: str, stride: int, dilation: int) -> dict[str, object]:
    strides = {"stride_h": stride, "stride_w": stride}
    return {"padding": padding, **strides, "dilation_h_factor": dilation, "dilation_w_factor": dilation}


def _details(kernel: Extents, padding: str, stride: int, dilation: int) -> dict[str, object]:
    return {"kernel": " x ".join(map(str, kernel)), "stride": stride, "dilation": dilation, "padding": padding}


def convolution(random: Random) -> Drawn:
    depth, channels = between(random, 1, 512), between(random, 1, 512)
    image, kernel, stride, dilation = _window(random, depth)
    padding = str(random.choice(["SAME", "VALID"]))
    size = _result(image[1:3], kernel, stride, dilation, padding)
    return Drawn(
        "CONV_2D",
        (image,),
        ((channels, *kernel, depth), (channels,)),
        (1, *size, channels),
        _window_options(padding, stride, dilation),
        macs=prod(size) * channels * prod(kernel) * depth,
        details=_details(kernel, padding, stride, dilation),
    )


def depthwise(random: Random) -> Drawn:
    depth, multiplier = between(random, 1, 1024), int(random.choice([1, 1, 1, 2, 3, 4]))
    image, kernel, stride, dilation = _window(random, depth)
    padding = str(random.choice(["SAME", "VALID"]))
    size = _result(image[1:3], kernel, stride, dilation, padding)
    channels = depth * multiplier
    return Drawn(
        "DEPTHWISE_CONV_2D",
        (image,),
        ((1, *kernel, channels), (channels,)),
        (1, *size, channels),
        _window_options(padding, stride, dilation) | {"depth_multiplier": multiplier},
        macs=prod(size) * channels * prod(kernel),
        details=_details(kernel, padding, stride, dilation),
    )


def transpose_convolution(random: Random) -> Drawn:
    depth, channels = between(random, 1, 512), between(random, 1, 512)
    height, width, side = between(random, 1, 128), between(random, 1, 128), int(random.choice([1, 2, 3, 4, 5, 8, 16]))
    stride = int(random.choice([1, 2, 2, 3, 4]))
    size = (1, height * stride, width * stride, channels)
    return Drawn(
        "TRANSPOSE_CONV",
        ((1, height, width, depth),),
        (np.array(size, np.int32), (channels, side, side, depth)),
        size,
        {"padding": "SAME", "stride_h": stride, "stride_w": stride},
        macs=height * width * depth * channels * side * side,
        constants_first=True,
        details={"kernel": f"{side} x {side}", "stride": stride},
    )


def fully_connected(random: Random) -> Drawn:
    rows = 1 if random.random() < 0.5 else between(random, 1, 1024)
    depth, channels = between(random, 1, 1 << 17), between(random, 1, 16384)
    return Drawn(
        "FULLY_CONNECTED",
        ((rows, depth),),
        ((channels, depth), (channels,)),
        (rows, channels),
        {},
        macs=rows * depth * channels,
    )


def batch_matmul(random: Random) -> Drawn:
    batch, rows, depth, columns = between(random, 1, 64), *(between(random, 1, 4096) for _ in range(3))
    adjoint_left, adjoint_right = (bool(random.random() < 0.3) for _ in range(2))
    left = (batch, depth, rows) if adjoint_left else (batch, rows, depth)
    right = (batch, columns, depth) if adjoint_right else (batch, depth, columns)
    options = {"adj_x": adjoint_left, "adj_y": adjoint_right}
    return Drawn(
        "BATCH_MATMUL",
        (left, right),
        (),
        (batch, rows, columns),
        options,
        macs=batch * rows * depth * columns,
        details=options,
    )


def lstm(random: Random) -> Drawn:
    times, batch = between(random, 1, 256), between(random, 1, 16)
    depth, cells = between(random, 1, 1024), between(random, 4, 1024)
    gates = [(cells, depth)] * 4 + [(cells, cells)] * 4 + [(cells,)] * 4
    return Drawn(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        ((times, batch, depth),),
        tuple(gates),
        (times, batch, cells),
        {"time_major": True, "fused_activation_function": "TANH"},
        macs=times * batch * 4 * cells * (cells + depth),
        steps=times,
    )


def softmax(random: Random) -> Drawn:
    shape = (between(random, 1, 8192), between(random, 1, 65536))
    return Drawn("SOFTMAX", (shape,), (), shape, {"beta": 1.0})


def _image(random: Random) -> Extents:
    rank = int(random.integers(2, 5))
    return tuple(between(random, 1, 2048 if rank > 2 else 65536) for _ in range(rank))


def reduction(random: Random) -> Drawn:
    shape = _image(random)
    axes = [axis for axis in range(len(shape)) if random.random() < 0.5] or [int(random.integers(len(shape)))]
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    code = str(random.choice(["MEAN", "SUM", "REDUCE_MAX"]))
    constants = (np.array(axes, np.int32),)
    return Drawn(code, (shape,), constants, kept, {"keep_dims": True}, details={"axes": axes})


def arg_max(random: Random) -> Drawn:
    shape = _image(random)
    axis = len(shape) - 1 if random.random() < 0.5 else int(random.integers(len(shape)))
    kept = tuple(extent for i, extent in enumerate(shape) if i != axis)
    constants = (np.array(axis, np.int32),)
    options = {"output_type": "INT32"}
    return Drawn("ARG_MAX", (shape,), constants, kept, options, result_type="int32", details={"axis": axis})


def cumulative_sum(random: Random) -> Drawn:
    shape = _image(random)
    axis = int(random.integers(len(shape)))
    return Drawn("CUMSUM", (shape,), (np.array(axis, np.int32),), shape, {}, details={"axis": axis})


OPERATORS: dict[str, Callable[[Random], Drawn]] = {
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "TRANSPOSE_CONV": transpose_convolution,
    "FULLY_CONNECTED": fully_connected,
    "BATCH_MATMUL": batch_matmul,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
    "SOFTMAX": softmax,
    "MEAN": reduction,
    "ARG_MAX": arg_max,
    "CUMSUM": cumulative_sum,
}


def draw(operator: str, shapes: int, seed: int) -> list[Drawn]:
    """``shapes`` of an operator, none of them too large; the same ones for the same seed."""
    random = np.random.default_rng([seed, list(OPERATORS).index(operator)])
    found: list[Drawn] = []
    while len(found) < shapes:
        drawn = OPERATORS[operator](random)
        if drawn.fits:
            found.append(drawn)
    return found
