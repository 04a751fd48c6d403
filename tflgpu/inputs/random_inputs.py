"""Random numbers in place of inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.tensor_info import TensorInfo


def random_input(info: TensorInfo, generator: np.random.Generator) -> NDArray[Any]:
    """Return Gaussian numbers as the delegate's Inference Diff tool draws them.

    With a mean of 1/2 and a deviation of 1/3, drawn again outside of [0, 1), and stretched to -1..1 for floats and to
    all values for 8-bit and 16-bit integers. Wider integers, which may be indices, are 0 or 1.

    https://github.com/tensorflow/tensorflow, lite/tools/evaluation/stages/inference_profiler_stage.cc

    Args:
        info: The input; its shape and element type are the result's.
        generator: Is advanced.
    """
    dtype = np.dtype(info.dtype)
    unit = generator.normal(0.5, 1 / 3, info.shape)
    while (outside := (unit < 0) | (unit >= 1)).any():
        unit = np.where(outside, generator.normal(0.5, 1 / 3, info.shape), unit)
    if dtype.kind == "f":
        return (2 * unit - 1).astype(dtype)
    whole_range = dtype.kind in "iu" and dtype.itemsize < 4
    lowest, highest = (np.iinfo(dtype).min, np.iinfo(dtype).max) if whole_range else (0, 1)
    drawn: NDArray[Any] = np.floor(lowest + unit * (highest - lowest + 1)).astype(dtype)
    return drawn
