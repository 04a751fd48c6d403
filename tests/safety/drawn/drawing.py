"""A network under construction by random steps, computed in double alongside."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random
from typing import Any

import numpy as np

from tests.ops.case import Net, Tensor, largest

Shape = tuple[int, ...]

LARGEST = 6000  # elements of a tensor
TAME = 8.0  # the largest number of a tensor that later steps get
SIZES = (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)


class Drawing:
    """The tensors that later steps may read, and the sources of what is drawn.

    random: decides everything but the values of tensors, so that hypothesis can shrink it.
    moves_only: no step has computed anything yet, so that results have equal bits.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.net = Net(random.randrange(1 << 16))
        self.tensors: list[Tensor] = []
        self.moves_only = True
        self._constants: list[Tensor] = []

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.random.randrange(len(choices))]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def size(self) -> int:
        return int(self.one_of(SIZES))

    def shape(self, min_rank: int = 0, max_rank: int = 6, largest: int = LARGEST) -> Shape:
        """Axes of odd sizes and of size 1 among them."""
        sizes: list[int] = []
        for _ in range(self.random.randint(min_rank, max_rank)):
            sizes.append(min(self.size(), max(1, largest // max(1, prod(sizes)))))
        return tuple(sizes)

    def factored(self, size: int, max_rank: int = 5) -> Shape:
        """A shape of ``size`` elements."""
        shape = [size]
        for _ in range(self.random.randrange(max_rank)):
            axis = self.random.randrange(len(shape))
            divisor = self.one_of([d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0])
            shape[axis : axis + 1] = [shape[axis] // divisor, divisor]
        return () if size == 1 and self.chance(0.2) else tuple(shape)

    def operand(self, min_rank: int = 0, max_rank: int = 6) -> Tensor:
        """A tensor of this rank, most often the last one; one is reshaped if there is none."""
        fit = [x for x in self.tensors if min_rank <= len(x.shape) <= max_rank]
        if not fit:
            self.add(self.ranked(self.one_of(self.tensors), self.random.randint(max(1, min_rank), max_rank)))
            return self.tensors[-1]
        return fit[-1] if self.chance(0.6) else self.one_of(fit)

    def ranked(self, x: Tensor, rank: int) -> Tensor:
        """``x`` in another rank: axes of size 1 ahead of the others, or the first axes as one."""
        if len(x.shape) < rank:
            return self.reshaped(x, (*[1] * (rank - len(x.shape)), *x.shape))
        first = len(x.shape) - rank + 1
        return self.reshaped(x, (prod(x.shape[:first]), *x.shape[first:]))

    def image(self) -> Tensor:
        return self.operand(4, 4)

    def reshaped(self, x: Tensor, shape: Shape) -> Tensor:
        return self.net.op("RESHAPE", [x, self.net.integers(shape)], x.value.reshape(shape), {"new_shape": [*shape]})

    def other(self, shape: Shape) -> Tensor:
        """A new input, or a constant, of ``shape``; some constants are read more than once."""
        if self.chance(0.3):
            return self.net.input(self.net.normal(shape))
        if (known := [x for x in self._constants if x.shape == shape]) and self.chance(0.5):
            return self.one_of(known)
        self._constants.append(self.net.constant(self.net.normal(shape)))
        return self._constants[-1]

    def factors(self, shape: Shape) -> Tensor:
        return self.net.constant(self.net.factors(shape))

    def computes(self) -> None:
        self.moves_only = False

    def add(self, *results: Tensor) -> None:
        """Let later steps read ``results``, those of large numbers multiplied by a small one."""
        for x in results:
            if x.value.dtype.kind == "f" and (size := largest(x.value)) > TAME:
                factor = np.float32(TAME / 2 / size)
                self.computes()
                value = x.value * float(factor)
                x = self.net.op("MUL", [x, self.net.constant(np.array(factor))], value, activation="NONE")
            self.tensors.append(x)


def broadcast(drawing: Drawing, shape: Shape) -> Shape:
    """A shape that broadcasts to ``shape``: fewer axes, or some of size 1."""
    kept = shape[drawing.random.randint(0, len(shape)) :] if drawing.chance(0.5) else shape
    return tuple(1 if drawing.chance(0.3) else size for size in kept)
