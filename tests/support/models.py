"""Models for tests, an operator a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer import ModelBuilder

# The operator without a kernel of tests of what runs on the CPU: LiteRT has it, and the device has not.
WITHOUT_KERNEL = "DILATE"


class Builder(ModelBuilder):
    """A ModelBuilder for models of which structure matters: operators return their output, and weights are random."""

    def __init__(self, seed: int = 0, *, description: str = "") -> None:
        super().__init__(description)
        self.random = np.random.default_rng(seed)

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self._tensors[tensor].shape

    def weights(self, *shape: int, scale: float = 1.0) -> int:
        """A constant of random numbers."""
        return self.constant((scale * self.random.standard_normal(shape)).astype(np.float32))

    def ints(self, values: ArrayLike) -> int:
        """A constant of int32: axes, sizes, paddings."""
        return self.constant(np.array(values, np.int32))

    def add(
        self,
        code: str,
        inputs: Sequence[int],
        shape: Sequence[int] | None = None,
        dtype: str = "float32",
        *,
        name: str | None = None,
        quantization: Quantization | None = None,
        signature: Sequence[int] | None = None,
        version: int = 1,
        **options: object,
    ) -> int:
        """Append an operator with one output, and return that.

        shape: by default that of its first input. name, quantization and signature: of the output. options: fields of
        the operator's table; those that are left out have the schema's defaults.
        """
        shape = self.shape(inputs[0]) if shape is None else shape
        output = self.tensor(shape, dtype, name=name, quantization=quantization, shape_signature=signature)
        self.op(code, inputs, [output], options, version=version)
        return output

    def without_kernel(self, x: int, *, name: str | None = None) -> int:
        """Append ``WITHOUT_KERNEL``, which gives floats as they are: their elements are dilated by 1."""
        dilations, fill = self.ints([1] * len(self.shape(x))), self.constant(np.float32(0))
        return self.add(WITHOUT_KERNEL, [x, dilations, fill], self.shape(x), name=name)

    def convolution(
        self, x: int, out: int, side: int = 1, *, weights: NDArray[Any] | None = None, **options: Any
    ) -> int:
        """A convolution with a bias, and by default with a stride of 1 and ``padding`` ``"SAME"``.

        weights: of any window, by default random ones of a square. options: also those of :meth:`add`.
        """
        shape = (out, side, side, self.shape(x)[3])
        filters = self.weights(*shape) if weights is None else self.constant(weights.astype(np.float32))
        return self._window("CONV_2D", [x, filters, self.weights(out)], out, options)

    def depthwise(self, x: int, side: int = 3, *, multiplier: int = 1, **options: Any) -> int:
        """The same, of each channel."""
        channels = self.shape(x)[3] * multiplier
        inputs = [x, self.weights(1, side, side, channels), self.weights(channels)]
        return self._window("DEPTHWISE_CONV_2D", inputs, channels, {"depth_multiplier": multiplier, **options})

    def _window(self, code: str, inputs: list[int], channels: int, options: dict[str, Any]) -> int:
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1} | options
        batch, height, width, _ = self.shape(inputs[0])
        if options["padding"] == "VALID":
            _, rows, columns, _ = self.shape(inputs[1])
            height, width = height - rows + 1, width - columns + 1
        return self.add(code, inputs, (batch, height, width, channels), **options)
