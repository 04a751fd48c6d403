"""Write a trained DigitNet as a .tflite file with tflgpu's model writer."""

from __future__ import annotations

import numpy as np
from network import DigitNet
from numpy.typing import NDArray
from torch import Tensor, nn

from tflgpu.model.writer import ModelBuilder

Array = NDArray[np.float32]
_UNIT_STRIDE = {"padding": "SAME", "stride_w": 1, "stride_h": 1}


def export(net: DigitNet) -> bytes:
    """The model file: "image" (1, 8, 8, 1) in 0..1 to "probabilities" (1, 10), both float32.

    Batch norms are folded into their convolutions, as a converter does, but for the residual branch: its norm
    stays a MUL and an ADD, for the compiler's own folding pass.
    """
    builder = ModelBuilder("handwritten digits 8x8")
    image = builder.input((1, 8, 8, 1), name="image")
    stem = _conv(builder, image, 8, *_folded(net.stem, net.stem_norm), "RELU")
    depthwise = _depthwise(builder, stem, 8, *_folded(net.depthwise, net.depthwise_norm), "RELU6")
    trunk = _conv(builder, depthwise, 8, *_folded(net.pointwise, net.pointwise_norm), "RELU6")

    width = net.classifier.in_features
    scale, shift = _scale_and_shift(net.residual_norm)
    branch = _conv(builder, trunk, 8, _values(net.residual.weight), np.zeros(width, np.float32), "NONE")
    scaled = _binary(builder, "MUL", branch, builder.constant(scale), (1, 8, 8, width))
    shifted = _binary(builder, "ADD", scaled, builder.constant(shift), (1, 8, 8, width))
    summed = _binary(builder, "ADD", trunk, shifted, (1, 8, 8, width), "RELU")

    pooled = builder.tensor((1, 4, 4, width))
    window = {"padding": "VALID", "filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2}
    builder.op("MAX_POOL_2D", [summed], [pooled], window)

    squeezed = _mean(builder, pooled, (1, 1, 1, width))
    squeezed = _conv(builder, squeezed, 1, _values(net.squeeze.weight), _bias(net.squeeze), "RELU")
    excited = _conv(builder, squeezed, 1, _values(net.excite.weight), _bias(net.excite), "NONE")
    gate = builder.tensor((1, 1, 1, width))
    builder.op("LOGISTIC", [excited], [gate])
    gated = _binary(builder, "MUL", pooled, gate, (1, 4, 4, width))

    features = _mean(builder, gated, (1, width))
    classes = net.classifier.out_features
    logits = builder.tensor((1, classes))
    weights = builder.constant(_values(net.classifier.weight))
    builder.op("FULLY_CONNECTED", [features, weights, builder.constant(_bias(net.classifier))], [logits])
    probabilities = builder.tensor((1, classes), name="probabilities")
    builder.op("SOFTMAX", [logits], [probabilities], {"beta": 1.0})
    return builder.finish([probabilities], signature="serving_default")


def _values(tensor: Tensor) -> Array:
    return tensor.detach().numpy()


def _bias(layer: nn.Conv2d | nn.Linear) -> Array:
    assert layer.bias is not None
    return _values(layer.bias)


def _scale_and_shift(norm: nn.BatchNorm2d) -> tuple[Array, Array]:
    """The factors and summands of ``norm`` in inference, ``x * scale + shift`` per channel."""
    assert norm.running_mean is not None and norm.running_var is not None
    mean, variance, gamma, beta = (
        _values(tensor).astype(np.float64) for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    scale = gamma / np.sqrt(variance + norm.eps)
    return scale.astype(np.float32), (beta - mean * scale).astype(np.float32)


def _folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Array, Array]:
    """Weights and bias of the one convolution that equals ``norm(conv(x))``, for a ``conv`` without bias."""
    scale, shift = _scale_and_shift(norm)
    return _values(conv.weight) * scale[:, None, None, None], shift


def _conv(builder: ModelBuilder, x: int, size: int, oihw: Array, bias: Array, activation: str) -> int:
    y = builder.tensor((1, size, size, len(oihw)))
    inputs = [x, builder.constant(oihw.transpose(0, 2, 3, 1)), builder.constant(bias)]
    builder.op("CONV_2D", inputs, [y], {**_UNIT_STRIDE, "fused_activation_function": activation})
    return y


def _depthwise(builder: ModelBuilder, x: int, size: int, o1hw: Array, bias: Array, activation: str) -> int:
    y = builder.tensor((1, size, size, len(o1hw)))
    inputs = [x, builder.constant(o1hw.transpose(1, 2, 3, 0)), builder.constant(bias)]
    options = {**_UNIT_STRIDE, "depth_multiplier": 1, "fused_activation_function": activation}
    builder.op("DEPTHWISE_CONV_2D", inputs, [y], options)
    return y


def _binary(builder: ModelBuilder, code: str, x: int, y: int, shape: tuple[int, ...], activation: str = "NONE") -> int:
    z = builder.tensor(shape)
    builder.op(code, [x, y], [z], {"fused_activation_function": activation})
    return z


def _mean(builder: ModelBuilder, x: int, shape: tuple[int, ...]) -> int:
    """MEAN over height and width of NHWC ``x``; ``shape`` says whether they stay as dimensions of 1."""
    y = builder.tensor(shape)
    axes = builder.constant(np.array([1, 2], np.int32))
    builder.op("MEAN", [x, axes], [y], {"keep_dims": len(shape) == 4})
    return y
