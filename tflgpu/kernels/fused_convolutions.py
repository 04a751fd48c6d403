"""Nodes of two convolutions that kernels of several architectures compute."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.ir import EpilogueOp
from tflgpu.ops.image.window import Window


@dataclass(frozen=True)
class DepthwisePointwise:
    """A depthwise convolution with an ``epilogue`` of its own, and the pointwise one that alone reads it.

    Inputs: image NHWC, weights [1, kh, kw, channels] and bias of the depthwise convolution, weights
    [out, 1, 1, channels] and bias of the pointwise one; all but the image are constants.

    window: of the depthwise convolution. epilogue: ops that read no inputs.
    """

    window: Window
    epilogue: tuple[EpilogueOp, ...]
