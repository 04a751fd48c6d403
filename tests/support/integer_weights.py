"""Models whose weights are integers of 4 or 8 bits, by a scale for each output channel or for each block of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.models import Builder
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.tensor_info import Quantization

Array = NDArray[Any]


@dataclass(frozen=True)
class Weights:
    """integers: [out, ..., depth]; scales: [out], or [out, ..., blocks of the depth]."""

    integers: Array
    scales: Array
    bits: int

    @property
    def values(self) -> Array:
        """The numbers that they stand for, in double."""
        scales = self.scales.astype(np.float64)
        if scales.ndim == 1:
            return self.integers * scales.reshape(-1, *(1,) * (self.integers.ndim - 1))
        return self.integers * np.repeat(scales, self.integers.shape[-1] // scales.shape[-1], axis=-1)


def draw(random: np.random.Generator, shape: tuple[int, ...], bits: int, block: int = 0) -> Weights:
    """block: inputs of a block; 0 for one scale a channel. Scales of blocks are halves, as converters store them."""
    most = 1 << bits - 1
    scales = (shape[0],) if block == 0 else (*shape[:-1], shape[-1] // block)
    drawn = random.uniform(0.01, 0.02, scales).astype(np.float32 if block == 0 else np.float16)
    return Weights(random.integers(-most, most, shape).astype(np.int8), drawn, bits)


def constant(builder: Builder, weights: Weights) -> int:
    """The constant as int8, which :func:`finished` stores as it should be."""
    scales = weights.scales.reshape(weights.scales.shape[0], -1)[:, 0].astype(np.float32)
    grid = Quantization(scales, np.zeros(len(scales), np.int64), axis=0)
    return builder.constant(weights.integers, quantization=grid)


def finished(builder: Builder, outputs: list[int], stored: dict[int, Weights]) -> bytes:
    """The model. stored: by the number of its constant."""
    from ai_edge_litert import schema_py_generated as schema

    file = unpacked(builder.finish(outputs))
    graph = file.subgraphs[0]
    for index, weights in stored.items():
        tensor = graph.tensors[index]
        if weights.bits == 4:
            flat = weights.integers.reshape(-1).view(np.uint8) & 15
            flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
            tensor.type = schema.TensorType.INT4
            file.buffers[tensor.buffer].data = flat[::2] | flat[1::2] << 4
        if weights.scales.ndim > 1:
            blocks = schema.BlockwiseQuantizationT()
            blocks.scales, blocks.zeroPoints = len(graph.tensors), -1
            blocks.blockSize = weights.integers.shape[-1] // weights.scales.shape[-1]
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
            tensor.quantization.details = blocks
            scales = schema.TensorT()
            scales.shape, scales.type, scales.name = [*weights.scales.shape], schema.TensorType.FLOAT16, b"scales"
            scales.buffer = len(file.buffers)
            graph.tensors.append(scales)
            file.buffers.append(schema.BufferT())
            file.buffers[-1].data = np.frombuffer(weights.scales.tobytes(), np.uint8)
    return packed(file)


def layer(weights: Weights, rows: int, bias: Array | None) -> bytes:
    """A fully connected layer."""
    builder = Builder()
    out, depth = weights.integers.shape
    x, w = builder.input((rows, depth), name="x"), constant(builder, weights)
    inputs = [x, w] if bias is None else [x, w, builder.constant(bias.astype(np.float32))]
    y = builder.add("FULLY_CONNECTED", inputs, (rows, out), name="y", keep_num_dims=True)
    return finished(builder, [y], {w: weights})
