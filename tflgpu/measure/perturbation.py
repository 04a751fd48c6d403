"""A model and inputs that differ by what half precision rounds: how much they change answers in float is no fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.reader import read_model
from tflgpu.target import HALF_MAX

Array = NDArray[Any]

UNIT = 2.0**-11  # the largest error of half, as a part of a number

# Draws of inputs. A softmax that chooses between two near classes may choose the same one in one of them.
DRAWS = 3

SEED = 58


def with_rounded_weights(model: bytes) -> bytes:
    """Return the model with its float matrices rounded to half.

    Args:
        model: The file.
    """
    rounded, begin = bytearray(model), np.frombuffer(model, np.uint8).ctypes.data
    for tensor in (t for subgraph in read_model(model).subgraphs for t in subgraph.tensors):
        data = tensor.data
        if data is not None and data.dtype == np.float32 and data.size > max(data.shape, default=1):
            place = data.ctypes.data - begin
            halves = np.clip(data, -HALF_MAX, HALF_MAX).astype(np.float16)
            rounded[place : place + data.nbytes] = halves.astype(np.float32).tobytes()
    return bytes(rounded)


def perturbed(inputs: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield :data:`DRAWS` sets of inputs whose floats differ from these by what half rounds at most.

    Args:
        inputs: One set. Integers stay as they are.
    """
    generator = np.random.default_rng(SEED)
    for _ in range(DRAWS):
        yield [
            (x * (1 + UNIT * generator.uniform(-1, 1, x.shape))).astype(x.dtype) if x.dtype.kind == "f" else x
            for x in inputs
        ]
