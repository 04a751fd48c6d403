"""Models whose weights are integers of 4 or 8 bits, by a scale for each output channel or for each block of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.models import Builder
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.tensor_info import Quantization
from tflgpu.target import Target

Array = NDArray[Any]


@dataclass(frozen=True)
class Weights:
    """integers: [out, ..., depth]; scales: [out], or [out, ..., blocks of the depth]; zeros: of blocks."""

    integers: Array
    scales: Array
    bits: int
    block: int = 0
    zeros: Array | None = None

    @property
    def values(self) -> Array:
        """The numbers that they stand for, in double."""
        scales = self.scales.astype(np.float64)
        if scales.ndim == 1:
            return self.integers * scales.reshape(-1, *(1,) * (self.integers.ndim - 1))
        depth, zeros = self.integers.shape[-1], np.zeros(scales.shape) if self.zeros is None else self.zeros
        scales, zeros = (np.repeat(each, self.block, axis=-1)[..., :depth] for each in (scales, zeros))
        return (self.integers.astype(np.float64) - zeros) * scales


def draw(
    random: np.random.Generator,
    shape: tuple[int, ...],
    bits: int,
    block: int = 0,
    *,
    signed: bool = False,
    zeros: str = "",
) -> Weights:
    """block: inputs of a block; 0 for one scale a channel. Scales of blocks are halves, as converters store them.

    signed: whether some scales are negative. zeros: the type of zero points, none if it is empty.
    """
    most = 1 << bits - 1
    scales = (shape[0],) if block == 0 else (*shape[:-1], -(-shape[-1] // block))
    drawn = random.uniform(0.01, 0.02, scales).astype(np.float32 if block == 0 else np.float16)
    integers = random.integers(-most, most, shape).astype(np.int8)
    if signed:
        drawn *= random.choice((-1, 1), scales).astype(drawn.dtype)
    return Weights(integers, drawn, bits, block, random.integers(-7, 8, scales).astype(zeros) if zeros else None)


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
            blocks.scales, blocks.zeroPoints, blocks.blockSize = _stored(file, weights.scales), -1, weights.block
            if weights.zeros is not None:
                blocks.zeroPoints = _stored(file, weights.zeros)
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
            tensor.quantization.details = blocks
    return packed(file)


def _stored(file: Any, numbers: Array) -> int:
    """The index of a new tensor with these numbers."""
    from ai_edge_litert import schema_py_generated as schema

    tensor = schema.TensorT()
    tensor.shape, tensor.name = [*numbers.shape], b"of blocks"
    tensor.type = getattr(schema.TensorType, numbers.dtype.name.upper())
    tensor.buffer = len(file.buffers)
    file.buffers.append(schema.BufferT())
    file.buffers[-1].data = np.frombuffer(numbers.tobytes(), np.uint8)
    file.subgraphs[0].tensors.append(tensor)
    return len(file.subgraphs[0].tensors) - 1


def layer(weights: Weights, rows: int, bias: Array | None) -> bytes:
    """A fully connected layer."""
    builder = Builder()
    out, depth = weights.integers.shape
    x, w = builder.input((rows, depth), name="x"), constant(builder, weights)
    inputs = [x, w] if bias is None else [x, w, builder.constant(bias.astype(np.float32))]
    y = builder.add("FULLY_CONNECTED", inputs, (rows, out), name="y", keep_num_dims=True)
    return finished(builder, [y], {w: weights})


def sparse_layer(dtype: str, *, has_scale: bool) -> bytes:
    """A fully connected layer of DENSIFY, whose input has this type. has_scale: whether the sparse constant has one."""
    from ai_edge_litert import schema_py_generated as schema

    random, builder = np.random.default_rng(0), Builder()
    grid = (lambda scale, zero: Quantization([scale], [zero])) if dtype == "int8" else (lambda *_: None)
    integers = random.integers(-127, 128, (5, 24)).astype(np.int8)
    x = builder.input((3, 24), dtype, quantization=grid(0.02, 3))
    bias = random.integers(-999, 999, 5).astype(np.int32 if dtype == "int8" else np.float32)
    b = builder.constant(bias, quantization=grid(0.02 * 0.03, 0))
    w = builder.constant(integers, quantization=Quantization([0.03], [0]) if has_scale else None)
    dense = builder.tensor((5, 24), "int8", quantization=Quantization([0.03], [0]))
    y = builder.tensor((3, 5), dtype, quantization=grid(0.3, -5))
    builder.op("DENSIFY", [w], [dense])
    builder.op("FULLY_CONNECTED", [x, dense, b], [y])
    file = unpacked(builder.finish([y]))
    sparsity = schema.SparsityParametersT()
    sparsity.traversalOrder, sparsity.dimMetadata = [0, 1], []
    for size in integers.shape:
        level = schema.DimensionMetadataT()
        level.denseSize = size
        sparsity.dimMetadata.append(level)
    file.subgraphs[0].tensors[w].sparsity = sparsity
    return packed(file)


def take_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cores have no caches, so that few weights are as far away as many."""
    monkeypatch.setattr(Target, "caches_hold", lambda *_: False)
