"""Operators of images: convolutions, pooling, resizing, and the boxes of detectors."""

from __future__ import annotations

from tflgpu.ops.image import (  # noqa: F401 - they fill the registry
    convolution,
    detection,
    mediapipe,
    resize,
    window,
)
