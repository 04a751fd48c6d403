"""A model as its file declares it: what the reader makes of the bytes, and all later stages start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import Quantization

Array = NDArray[np.generic]

DTYPES = {
    value: name.lower()
    for name, value in vars(tflite.TensorType).items()
    if not name.startswith("_") and isinstance(value, int)
}


@dataclass(frozen=True)
class FileTensor:
    """A tensor as the file declares it. ``data`` views the file; ``signature`` has -1 where a dimension is free.

    Constants that the file stores sparse are dense here.
    """

    index: int
    name: str
    shape: Shape
    signature: Shape
    dtype: str
    data: Array | None = field(default=None, compare=False, repr=False)
    quantization: Quantization | None = None
    is_variable: bool = False

    @property
    def bytes(self) -> int:
        return prod(self.shape) * itemsize(self.dtype)


@dataclass(frozen=True)
class Operator:
    """One operator. Options are those of its flatbuffer table by snake_case name, defaults filled in."""

    index: int
    code: str
    version: int
    inputs: tuple[int, ...]  # -1 is an absent optional input
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    is_custom: bool = False
    custom_options: bytes = b""


@dataclass(frozen=True)
class Subgraph:
    name: str
    tensors: tuple[FileTensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """A named entry point: argument names -> tensor indices of one subgraph."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True)
class Model:
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...]
    description: str


NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in DTYPES.values()
    if name in np.sctypeDict and name not in ("string", "int4", "bfloat16")
}


def itemsize(dtype: str) -> int:
    return NUMPY_TYPES[dtype].itemsize if dtype in NUMPY_TYPES else 1
