"""Operators of images: convolutions, pooling, resizing."""

from __future__ import annotations

from tflgpu.ops.image import convolution, detection, landmarks, mediapipe, pooling, resampler, resize, window

__all__ = ["convolution", "detection", "landmarks", "mediapipe", "pooling", "resampler", "resize", "window"]
