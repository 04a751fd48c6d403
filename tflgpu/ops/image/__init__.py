"""Operators of images: convolutions, pooling, resizing, and the boxes of detectors."""

from __future__ import annotations

from tflgpu.ops.image import (
    convolution,
    convolution_3d,
    detection,
    landmarks,
    mediapipe,
    pooling,
    resampler,
    resize,
    window,
)

__all__ = [
    "convolution",
    "convolution_3d",
    "detection",
    "landmarks",
    "mediapipe",
    "pooling",
    "resampler",
    "resize",
    "window",
]
