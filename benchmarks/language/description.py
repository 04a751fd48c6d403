"""A model without its weights, which are drawn again: small enough to be kept, and the same ones each time.

    python -m benchmarks.language.description describe MODEL.tflite NETWORK.tflite.xz
    python -m benchmarks.language.description draw NETWORK.tflite.xz MODEL.tflite

A description is the compressed file with zeros in place of its weights, after a line of JSON that has for each of them
the offset, size, element type, mean and deviation. Scales of channels are their mean. So only the time that a model
takes means anything, and that two engines agree; what it answers does not.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tflite
from numpy.typing import NDArray

# Element types whose constants are drawn; two elements of int4 are one byte.
DRAWN = {
    tflite.TensorType.FLOAT32: "float32",
    tflite.TensorType.FLOAT16: "float16",
    tflite.TensorType.INT8: "int8",
    tflite.TensorType.INT4: "uint8",
}

SMALLEST = 2048  # bytes; constants below it stay as they are

FEW = 16  # different values, which tables such as masks have: they stay as they are, too

DEVIATION = 32  # of drawn integers


class Weights(NamedTuple):
    """Where weights lie, and how they are drawn."""

    offset: int
    size: int
    dtype: str
    mean: float
    deviation: float


def described(model: bytes) -> bytes:
    """The description of a model."""
    data = np.frombuffer(bytearray(model), np.uint8)
    file = tflite.Model.GetRootAs(data.data, 0)
    for scale in _scales(file, data):
        scale[:] = scale.mean()
    found = list(_weights(file, data))
    for weights in found:
        data[weights.offset : weights.offset + weights.size] = 0
    return lzma.compress(json.dumps(found).encode() + b"\n" + data.tobytes())


def drawn(description: bytes) -> bytes:
    """The model of a description."""
    data = lzma.decompress(description)
    end = data.index(b"\n")
    model, draw = bytearray(data[end + 1 :]), np.random.default_rng(0)
    for offset, size, dtype, mean, deviation in json.loads(data[:end]):
        count = size // np.dtype(dtype).itemsize
        if dtype == "uint8":
            values = draw.integers(0, 256, count)
        else:
            values = draw.standard_normal(count, np.float32) * deviation + mean
            values = values.clip(-127, 127) if dtype == "int8" else values
        model[offset : offset + size] = values.astype(dtype).tobytes()
    return bytes(model)


def _scales(file: Any, data: NDArray[np.uint8]) -> Iterator[NDArray[np.float32]]:
    """The scales of each tensor with one for each of many channels, as they lie in the file."""
    for graph in map(file.Subgraphs, range(file.SubgraphsLength())):
        for tensor in map(graph.Tensors, range(graph.TensorsLength())):
            quantization = tensor.Quantization()
            if quantization is not None and quantization.ScaleLength() * 4 >= SMALLEST:
                offset = _offset(quantization.ScaleAsNumpy(), data)
                yield data[offset : offset + 4 * quantization.ScaleLength()].view(np.float32)


def _weights(file: Any, data: NDArray[np.uint8]) -> Iterator[Weights]:
    types: dict[int, int] = {}
    for graph in map(file.Subgraphs, range(file.SubgraphsLength())):
        for tensor in map(graph.Tensors, range(graph.TensorsLength())):
            types.setdefault(tensor.Buffer(), tensor.Type())
    for number, buffer in enumerate(map(file.Buffers, range(file.BuffersLength()))):
        if buffer.DataLength():
            offset, size = _offset(buffer.DataAsNumpy(), data), buffer.DataLength()
        else:
            offset, size = buffer.Offset(), buffer.Size()  # after the flatbuffer
        dtype = DRAWN.get(types.get(number, -1))
        if dtype is None or size < SMALLEST:
            continue
        if not dtype.startswith("float"):
            yield Weights(offset, size, dtype, 0, DEVIATION)
            continue
        values = data[offset : offset + size].view(dtype)
        if len(np.unique(values[: 1 << 16])) > FEW or len(np.unique(values)) > FEW:
            some = values[: 1 << 20].astype(np.float64)
            yield Weights(offset, size, dtype, round(some.mean(), 6), round(some.std(), 6))


def _offset(view: NDArray[Any], data: NDArray[np.uint8]) -> int:
    return int(view.__array_interface__["data"][0] - data.__array_interface__["data"][0])


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["describe", "draw"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    made = described if given.what == "describe" else drawn
    given.target.write_bytes(made(given.source.read_bytes()))


if __name__ == "__main__":
    main()
