"""Layers with random weights, on top of the model writer.

Weights follow He et al., "Delving Deep into Rectifiers" (2015): variance 2 / fan-in after a ReLU keeps the
second moment of the activations. Dense filters are also centred as in Brock, De and Smith, "Characterizing
signal propagation to close the performance gap in unnormalized ResNets" (2021). Otherwise the means of ReLUs
add up from layer to layer until all inputs give the same output, which would hide a wrong kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.writer import ModelBuilder

Activation = Literal["NONE", "RELU", "RELU6", "SWISH"]
Padding = Literal["SAME", "VALID"]

_BIAS_STD = 0.1  # small beside activations of order 1, as after folding batch norms
_LOGIT_STD = 2.0  # spreads 1000 classes over some orders of magnitude without saturating the softmax

# For a standard normal x, of max(x, 0) and of x * sigmoid(x): the spread about the mean, and the mean square.
_RELU_STD, _RELU_SQUARE = math.sqrt((1 - 1 / math.pi) / 2), 1 / 2
_SWISH_STD, _SWISH_SQUARE = 0.559, 0.356
_GATE = 0.54  # the root of the mean square of sigmoid(x)


@dataclass(frozen=True, slots=True)
class Feature:
    """An activation. std: its expected spread about the channel means; the next filters are scaled by it."""

    index: int
    shape: tuple[int, ...]
    std: float
    rectified: bool  # it has no negative values, so another ReLU changes little
    square: float = _RELU_SQUARE  # of an activation's result: the expected mean square, for inputs of spread 1


class Network:
    """Builds a network with one input layer by layer: NHWC, with square strides."""

    def __init__(self, description: str, seed: int) -> None:
        self._builder = ModelBuilder(description)
        self._rng = np.random.default_rng(seed)

    def input(self, size: int) -> Feature:
        """An RGB image (1, size, size, 3), expected as uniform values in -1..1."""
        shape = (1, size, size, 3)
        index = self._builder.input(shape, name="input")
        return Feature(index, shape, std=math.sqrt(1 / 3), rectified=False)

    def waveform(self, samples: int, channels: int) -> Feature:
        """Sound (1, 1, samples, channels), expected as uniform values in -1..1."""
        shape = (1, 1, samples, channels)
        index = self._builder.input(shape, name="input")
        return Feature(index, shape, std=math.sqrt(1 / 3), rectified=False)

    def conv(
        self,
        x: Feature,
        channels: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        *,
        padding: Padding = "SAME",
        activation: Activation = "NONE",
        std: float = 1.0,
    ) -> Feature:
        """CONV_2D. kernel: its size, or height and width. std: the spread of the outputs before the activation."""
        n, *sizes, depth = x.shape
        window = (kernel, kernel) if isinstance(kernel, int) else kernel
        weights = self._builder.constant(self._centred((channels, *window, depth), std / x.std))
        height, width = (_out_size(*axis, stride, padding) for axis in zip(sizes, window, strict=True))
        return self._op(
            "CONV_2D",
            [x.index, weights, self._bias(channels)],
            (n, height, width, channels),
            std,
            activation=activation,
            padding=padding,
            stride_w=stride,
            stride_h=stride,
        )

    def depthwise(self, x: Feature, stride: int = 1, kernel: int = 3, activation: Activation = "RELU6") -> Feature:
        """DEPTHWISE_CONV_2D with SAME padding and an activation, after the same activation."""
        n, size, _, channels = x.shape
        # Neighbouring pixels are similar, so a centred filter would cancel them; He's variance holds without centring.
        spread = math.sqrt(1 / (x.square * kernel**2))
        values = self._rng.normal(0, spread, (1, kernel, kernel, channels)).astype(np.float32)
        weights = self._builder.constant(values)
        out_size = _out_size(size, kernel, stride, "SAME")
        return self._op(
            "DEPTHWISE_CONV_2D",
            [x.index, weights, self._bias(channels)],
            (n, out_size, out_size, channels),
            1.0,
            activation=activation,
            padding="SAME",
            stride_w=stride,
            stride_h=stride,
            depth_multiplier=1,
        )

    def add(self, shortcut: Feature, branch: Feature, activation: Activation = "NONE") -> Feature:
        """ADD of two features of one shape; the branch has the smaller spread."""
        std = math.hypot(shortcut.std, branch.std)
        inputs = [shortcut.index, branch.index]
        return self._op("ADD", inputs, shortcut.shape, std, activation=activation, rectified=shortcut.rectified)

    def pad(self, x: Feature, border: int) -> Feature:
        """PAD of ``border`` zero pixels on all four sides."""
        paddings = self._builder.constant(np.array([[0, 0], [border] * 2, [border] * 2, [0, 0]], np.int32))
        n, height, width, channels = x.shape
        shape = (n, height + 2 * border, width + 2 * border, channels)
        return self._op("PAD", [x.index, paddings], shape, x.std, rectified=x.rectified)

    def max_pool(self, x: Feature, kernel: int, stride: int) -> Feature:
        """MAX_POOL_2D without padding."""
        return self._pool("MAX_POOL_2D", x, kernel, stride)

    def average_pool(self, x: Feature) -> Feature:
        """AVERAGE_POOL_2D over the whole image, to (N, 1, 1, C)."""
        return self._pool("AVERAGE_POOL_2D", x, kernel=x.shape[1], stride=1)

    def mean(self, x: Feature, *, keep_dims: bool = False) -> Feature:
        """MEAN over height and width, to (N, C), or (N, 1, 1, C) if they are kept."""
        axes = self._builder.constant(np.array([1, 2], np.int32))
        n, _, _, channels = x.shape
        shape = (n, 1, 1, channels) if keep_dims else (n, channels)
        return self._op("MEAN", [x.index, axes], shape, x.std, rectified=x.rectified, keep_dims=keep_dims)

    def squeeze_and_excitation(self, x: Feature, hidden: int) -> Feature:
        """Every channel times a gate in 0..1, computed from the means of all channels (Hu et al., 2018)."""
        squeezed = self.conv(self.mean(x, keep_dims=True), hidden, activation="SWISH")
        logits = self.conv(squeezed, x.shape[3])
        gates = self._op("LOGISTIC", [logits.index], logits.shape, 1.0)
        return self._op("MUL", [x.index, gates.index], x.shape, _GATE * x.std)

    def conv_classifier(self, x: Feature, classes: int) -> bytes:
        """The model file, ending in 1x1 CONV_2D on (N, 1, 1, C), RESHAPE for any N, SOFTMAX."""
        logits = self.conv(x, classes, std=_LOGIT_STD)
        wanted = self._builder.constant(np.array([-1, classes], np.int32))
        shape = (x.shape[0], classes)
        return self._finish(self._op("RESHAPE", [logits.index, wanted], shape, logits.std, new_shape=[-1, classes]))

    def dense_classifier(self, x: Feature, classes: int) -> bytes:
        """The model file, ending in FULLY_CONNECTED on (N, C), SOFTMAX."""
        weights = self._builder.constant(self._centred((classes, x.shape[1]), _LOGIT_STD / x.std))
        inputs = [x.index, weights, self._bias(classes)]
        return self._finish(self._op("FULLY_CONNECTED", inputs, (x.shape[0], classes), _LOGIT_STD))

    def as_it_is(self, x: Feature) -> bytes:
        """The model file, with ``x`` as its output."""
        return self._builder.finish([x.index], signature="serving_default")

    def _finish(self, logits: Feature) -> bytes:
        probabilities = self._builder.tensor(logits.shape, name="probabilities")
        self._builder.op("SOFTMAX", [logits.index], [probabilities], {"beta": 1.0})
        return self._builder.finish([probabilities], signature="serving_default")

    def _centred(self, shape: tuple[int, ...], gain: float) -> NDArray[np.float32]:
        """Filters, one per index of the first axis, of mean zero and expected norm ``gain``."""
        weights = self._rng.standard_normal(shape, np.float32)
        weights -= weights.mean(tuple(range(1, len(shape))), keepdims=True)
        return weights * np.float32(gain / math.sqrt(math.prod(shape[1:])))

    def _bias(self, channels: int) -> int:
        return self._builder.constant(self._rng.normal(0, _BIAS_STD, channels).astype(np.float32))

    def _pool(self, code: str, x: Feature, kernel: int, stride: int) -> Feature:
        n, size, _, channels = x.shape
        out_size = _out_size(size, kernel, stride, "VALID")
        return self._op(
            code,
            [x.index],
            (n, out_size, out_size, channels),
            x.std,
            rectified=x.rectified,
            padding="VALID",
            filter_width=kernel,
            filter_height=kernel,
            stride_w=stride,
            stride_h=stride,
        )

    def _op(
        self,
        code: str,
        inputs: list[int],
        shape: tuple[int, ...],
        std: float,
        *,
        activation: Activation = "NONE",
        rectified: bool = False,
        **options: Any,
    ) -> Feature:
        """Append one operator; ``std`` and ``rectified`` are those of its result before ``activation``.

        SWISH, which TFLite has no fused activation for, is two more operators.
        """
        if activation == "SWISH":
            y = self._op(code, inputs, shape, std, **options)
            gate = self._op("LOGISTIC", [y.index], shape, 1.0)
            swish = self._op("MUL", [y.index, gate.index], shape, std * _SWISH_STD)
            return replace(swish, square=_SWISH_SQUARE)
        if activation != "NONE":
            options["fused_activation_function"] = activation
            std, rectified = (std if rectified else std * _RELU_STD), True
        index = self._builder.tensor(shape)
        self._builder.op(code, inputs, [index], options)
        return Feature(index, shape, std, rectified)


def _out_size(size: int, kernel: int, stride: int, padding: Padding) -> int:
    """Output pixels along one axis, as TFLite counts them."""
    return math.ceil((size if padding == "SAME" else size - kernel + 1) / stride)
