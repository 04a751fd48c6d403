"""Every combination of two and of three movements, by kind, of small tensors with odd numbers of channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest

from tests.ops.case import Tensor
from tests.ops.tolerance import EXACT, check
from tests.quick import takes_samples
from tests.safety.drawn.drawing import Drawing, Shape
from tests.safety.drawn.poison import NANS, poison
from tests.support.models import Builder
from tests.support.planning import computed_in_numpy, graph_of
from tflgpu import Execution, Options, compile
from tflgpu.options import KernelFamily

Movement = Callable[[Drawing, Tensor], Tensor]


def reshape(*shape: int) -> Movement:
    """To ``shape``, behind which all elements that are left lie on one axis."""
    return lambda d, x: d.reshaped(x, (*shape, x.value.size // prod(shape)))


def first_rows(d: Drawing, x: Tensor) -> Tensor:
    return _cut(d, x, (slice(0, -(-x.shape[0] // 2)),))


def last_rows(d: Drawing, x: Tensor) -> Tensor:
    return _cut(d, x, (slice(x.shape[0] // 2, x.shape[0]),))


def first_channels(d: Drawing, x: Tensor) -> Tensor:
    return _cut(d, x, (*map(slice, x.shape[:-1]), slice(0, -(-x.shape[-1] // 2))))


def last_channels(d: Drawing, x: Tensor) -> Tensor:
    return _cut(d, x, (*map(slice, x.shape[:-1]), slice(x.shape[-1] // 2, x.shape[-1])))


def _cut(d: Drawing, x: Tensor, kept: tuple[slice, ...]) -> Tensor:
    value = x.value[kept]
    begin = [s.start or 0 for s in kept] + [0] * (value.ndim - len(kept))
    return d.net.op("SLICE", [x, d.net.integers(begin), d.net.integers(value.shape)], value)


def first_of_all(d: Drawing, x: Tensor) -> Tensor:
    return d.net.ops("UNPACK", [x], [*x.value], {"num": x.shape[0], "axis": 0})[0]


def every_other(d: Drawing, x: Tensor) -> Tensor:
    bounds = [[0] * len(x.shape), [*x.shape], [2] * len(x.shape)]
    value = x.value[tuple(slice(None, None, 2) for _ in x.shape)]
    return d.net.op("STRIDED_SLICE", [x, *map(d.net.integers, bounds)], value)


def transpose(d: Drawing, x: Tensor) -> Tensor:
    order = [*range(len(x.shape))][::-1]
    return d.net.op("TRANSPOSE", [x, d.net.integers(order)], x.value.T)


def pad_behind(d: Drawing, x: Tensor) -> Tensor:
    return _pad(d, x, [(0, 0)] * (len(x.shape) - 1) + [(0, 3)])


def pad_around(d: Drawing, x: Tensor) -> Tensor:
    return _pad(d, x, [(1, 2)] * len(x.shape))


def _pad(d: Drawing, x: Tensor, margins: list[tuple[int, int]]) -> Tensor:
    return d.net.op("PAD", [x, d.net.integers(margins)], np.pad(x.value, margins))


def twice(d: Drawing, x: Tensor) -> Tensor:
    axis = len(x.shape) - 1
    return d.net.op(
        "CONCATENATION", [x, x], np.concatenate([x.value, x.value], axis), {"axis": axis}, activation="NONE"
    )


MOVEMENTS: tuple[Movement, ...] = (
    reshape(1, 1, 1), reshape(1), reshape(), first_rows, last_rows, first_channels, last_channels, first_of_all,
    every_other, transpose, pad_behind, pad_around, twice,
)  # fmt: skip

SHAPES: tuple[Shape, ...] = ((2, 1), (2, 3), (3, 5), (2, 3, 6), (1, 2, 3, 5))


def _chains(shape: Shape, computed: bool, chains: Iterable[Sequence[Movement]]) -> Drawing:
    """A network with an output for each chain."""
    d = Drawing(Random(0))
    x = d.net.input(np.arange(1, 1 + prod(shape), dtype=np.float32).reshape(shape))
    if computed:
        x = d.net.op("NEG", [x], -x.value)
    for chain in chains:
        y = x
        for movement in chain:
            if 0 < len(y.shape) < 5:
                y = movement(d, y)
        d.net.output(y)
    return d


@pytest.mark.parametrize(("shape", "computed"), [(shape, bool(n % 2)) for n, shape in enumerate(SHAPES)], ids=str)
def test_passes_keep_what_three_movements_give(shape: Shape, computed: bool, pytestconfig: pytest.Config) -> None:
    """In numpy, of the graphs that the passes make; they are verified after each pass.

    Samples have each chain with two of the five shapes.
    """
    chains = list(product(MOVEMENTS, repeat=3))
    if takes_samples(pytestconfig):
        first = SHAPES.index(shape)
        chains = [chain for n, chain in enumerate(chains, first) if n % len(SHAPES) < 2]
    case = _chains(shape, computed, chains).net.case(EXACT)
    outputs = computed_in_numpy(graph_of(case.model), case.inputs)
    assert outputs is not None
    for got, expected in zip(outputs, case.expected, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.quick(when=lambda shape: shape in SHAPES[:2])
@pytest.mark.parametrize(
    ("shape", "computed", "kernels"),
    [(shape, bool(n % 2), ("gpu", "cpu")[n % 2]) for n, shape in enumerate(SHAPES)],
    ids=str,
)
def test_kernels_keep_what_movements_give(shape: Shape, computed: bool, kernels: KernelFamily) -> None:
    """Kernels of two movements, also behind zeros that take the place of channels."""
    chains = product(MOVEMENTS, MOVEMENTS, (pad_behind,) if kernels == "cpu" else (twice,))
    case = _chains(shape, computed, chains).net.case(EXACT)
    options = Options(
        device="Intel", precision="fp32", execution=Execution(executor="launch", kernels=kernels), cache="off"
    )
    with compile(case.model, options) as model:
        poison(model, NANS)
        for got, expected in zip(model.run(case.inputs).values(), case.expected, strict=True):
            check(got, expected, EXACT, "fp32")


def unpacked(d: Drawing, x: Tensor, row: int) -> Tensor:
    return d.net.ops("UNPACK", [x], [*x.value], {"num": x.shape[0], "axis": 0})[row]


def sliced(d: Drawing, x: Tensor, row: int) -> Tensor:
    return _cut(d, x, (slice(row, row + 1), slice(0, x.shape[1])))


def strided(d: Drawing, x: Tensor, row: int) -> Tensor:
    bounds = [[row, 0], [row + 1, x.shape[1]], [1, 1]]
    return d.net.op("STRIDED_SLICE", [x, *map(d.net.integers, bounds)], x.value[row : row + 1])


@pytest.mark.quick(when=lambda cut, reshaped, kernels: cut is unpacked and kernels == "cpu")
@pytest.mark.parametrize("reshaped", (False, True), ids=("as it is", "reshaped"))
@pytest.mark.parametrize(("cut", "kernels"), [(unpacked, "cpu"), (sliced, "cpu"), (strided, "cpu"), (unpacked, "gpu")])
def test_zeros_after_a_row_of_a_matrix(
    cut: Callable[[Drawing, Tensor, int], Tensor], reshaped: bool, kernels: KernelFamily
) -> None:
    """1,296 forms on CPUs: each row of 3, of 1 to 6 columns, with 0 to 2 zeros before it and 1 to 4 after it.

    The last vec4 of a row ends in elements of the next one, which padding must not take for zeros.
    """
    d = Drawing(Random(0))
    for columns in range(1, 7):
        x = d.net.input(np.arange(1, 1 + 3 * columns, dtype=np.float32).reshape(3, columns))
        for row, before, after in product(range(3), range(3), range(1, 5)):
            y = cut(d, x, row)
            if reshaped:
                y = d.reshaped(y, (1, 1, 1, columns))
            d.net.output(_pad(d, y, [(0, 0)] * (len(y.shape) - 1) + [(before, after)]))
    case = d.net.case(EXACT)
    options = Options(
        device="Intel", precision="fp32", execution=Execution(executor="launch", kernels=kernels), cache="off"
    )
    with compile(case.model, options) as model:
        poison(model, NANS)
        for got, expected in zip(model.run(case.inputs).values(), case.expected, strict=True):
            check(got, expected, EXACT, "fp32")


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
def test_an_output_that_is_one_twice(kernels: KernelFamily, device_name: str) -> None:
    """A resize to the same size is no operator. Rows of the matrix lie in another order than pixels of the image."""
    builder = Builder()
    x = builder.input((4, 12), name="x")
    moved = builder.add("NEG", [x], (4, 12))
    image = builder.add("RESHAPE", [moved, builder.ints([1, 1, 4, 12])], (1, 1, 4, 12))
    same = builder.add("RESIZE_BILINEAR", [image, builder.ints([1, 4])], (1, 1, 4, 12))
    value = np.arange(48, dtype=np.float32).reshape(4, 12)
    options = Options(device=device_name, execution=Execution(kernels=kernels), precision="fp32", cache="off")
    with compile(builder.finish([image, same]), options) as model:
        for output in model.run([value]).values():
            np.testing.assert_array_equal(output.reshape(4, 12), -value)
