"""A model's inputs and outputs as callers see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tflgpu.graph.layout import Shape


@dataclass(frozen=True)
class Quantization:
    """``real = scale * (q - zero_point)``, with one pair for the tensor or one for each index along ``axis``.

    Raises ValueError for no scales, or another number of zero points than of scales.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0

    def __post_init__(self) -> None:
        if len(self.scale) == 0 or len(self.scale) != len(self.zero_point):
            raise ValueError(f"{len(self.scale)} scales and {len(self.zero_point)} zero points: they come in pairs")

    def numbers(self, integers: NDArray[Any]) -> NDArray[np.float32]:
        """Return the numbers for which integers of a tensor with one pair of scale and zero point stand.

        Args:
            integers: Elements of the tensor.
        """
        return np.asarray((integers.astype(np.float64) - self.zero_point[0]) * self.scale[0], np.float32)

    def integers(self, numbers: NDArray[np.float32], dtype: DTypeLike) -> NDArray[Any]:
        """Return the integers that stand for the nearest numbers, in a tensor with one pair of scale and zero point.

        Args:
            numbers: Any numbers; those out of range are clamped.
            dtype: The integers' type.
        """
        limits = np.iinfo(dtype)
        steps = np.rint(numbers / self.scale[0]) + self.zero_point[0]
        return np.asarray(np.clip(steps, limits.min, limits.max).astype(dtype))


@dataclass(frozen=True)
class TensorInfo:
    """A model input or output.

    Attributes:
        shape: In the file's order of axes, NHWC for images; the file's for an output whose shape only a run can tell.
        dtype: The file's element type, by its numpy name.
        free_axes: The axes whose size the file leaves open; ``shape`` has the sizes that the model was compiled for.
    """

    name: str
    shape: Shape
    dtype: str
    quantization: Quantization | None
    free_axes: tuple[int, ...] = ()


TensorIndex = int  # of the file's subgraph

Interface = tuple[tuple[TensorIndex, TensorInfo], ...]  # a model's inputs, or its outputs


@dataclass(frozen=True)
class PassedVariable:
    """A resource variable whose value partitions take from the host and give it.

    before, after: the tensors of the file's subgraph with its value before a run and after it; None for none. constant:
    its value after every run, if the file has that.
    """

    key: str
    info: TensorInfo
    before: TensorIndex | None
    after: TensorIndex | None
    constant: NDArray[Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class InitialValue:
    """The first value of a resource variable, in the elements of the file."""

    key: str
    info: TensorInfo
    value: NDArray[Any] = field(compare=False, repr=False)


@dataclass(frozen=True)
class InitialValues:
    """First values that a CALL_ONCE gives variables. subgraph: what it runs, once whoever calls it."""

    subgraph: int
    values: tuple[InitialValue, ...]


@dataclass(frozen=True)
class SignatureInfo:
    """A signature of a file, with the shapes that the file declares.

    Attributes:
        key: None for the main subgraph of a file without signatures.
    """

    key: str | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
