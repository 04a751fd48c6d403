"""Concatenations without a kernel: who computes where, and that results stay right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.support.models import Builder
from tests.support.planning import plan_of, templates
from tests.support.targets import GPU
from tflgpu.plan import Plan
from tflgpu.plan.barrier_intervals import barrier_intervals

CONCATENATE = "movement/concatenate"
Floats = NDArray[np.float32]


class Model(Builder):
    """Functions of one input ``x``, with the results that numpy gives for them."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.x = self.random.normal(size=shape).astype(np.float32)
        self.image = self.input(shape)
        self.values = {self.image: self.x}

    def apply(self, code: str, function: Callable[..., Floats], *inputs: int, **options: object) -> int:
        value = function(*(self.values[t] for t in inputs))
        output = self.add(code, inputs, value.shape, **options)
        self.values[output] = value
        return output

    def exp(self, x: int) -> int:
        return self.apply("EXP", np.exp, x)

    def indices(self, *values: list[int]) -> list[int]:
        tensors = [self.ints(v) for v in values]
        self.values |= {t: self.x for t in tensors}  # no function reads them
        return tensors

    def softmax(self, x: int) -> int:
        """A kernel that no other one takes in."""
        return self.apply("SOFTMAX", lambda v: np.exp(v) / np.exp(v).sum(-1, keepdims=True), x, beta=1.0)

    def concatenate(self, *parts: int, axis: int = -1) -> int:
        return self.apply("CONCATENATION", lambda *v: np.concatenate(v, axis), *parts, axis=axis)

    def check(self, device: str, output: int) -> Plan:
        model = self.finish([output])
        for family, executor in ("cpu", "launch"), ("gpu", "persistent"):
            options = tflgpu.Options(
                device=device,
                execution=tflgpu.Execution(kernels=family, executor=executor),
                precision="fp32",
                cache="off",
            )
            with tflgpu.compile(model, options) as compiled:
                (got,) = compiled.run([self.x]).values()
            np.testing.assert_allclose(got, self.values[output], rtol=1e-5, atol=1e-6)
        return plan_of(model, GPU)


def test_channels_of_an_image_are_computed_in_place(device_name: str) -> None:
    m = Model(1, 3, 5, 8)
    plan = m.check(device_name, m.softmax(m.concatenate(m.softmax(m.image), m.softmax(m.exp(m.image)))))
    assert CONCATENATE not in templates(plan)
    *parts, reader = (k.node for k in plan.kernels)
    begins = [plan.offsets[p.output] for p in parts if plan.roots[p.output] == reader.inputs[0]]
    assert begins == [plan.offsets[reader.inputs[0]], plan.offsets[reader.inputs[0]] + 3 * 5 * 8 * 4]
    *before, last = barrier_intervals(plan)
    assert last == max(before) + 1


def test_parts_of_parts(device_name: str) -> None:
    """A DenseNet has such parts: each of its layers reads the results of all layers before it."""
    m = Model(1, 4, 3, 4)
    x = m.softmax(m.image)
    for _ in range(3):
        x = m.concatenate(x, m.softmax(m.exp(x)))
    plan = m.check(device_name, m.softmax(x))
    assert CONCATENATE not in templates(plan)
    assert len({plan.roots[k.node.output] for k in plan.kernels[:-1]} - set(plan.graph.given)) <= 4


def test_images_of_a_batch_are_computed_in_place(device_name: str) -> None:
    m = Model(2, 3, 5, 7)
    both = m.concatenate(m.softmax(m.image), m.softmax(m.exp(m.image)), axis=0)
    assert CONCATENATE not in templates(m.check(device_name, m.softmax(both)))


def test_the_last_part_may_end_within_a_slice(device_name: str) -> None:
    m = Model(1, 3, 5, 6)
    few = m.apply("SLICE", lambda v, *_: v[..., :4], m.image, *m.indices([0, 0, 0, 0], [1, 3, 5, 4]))
    plan = m.check(device_name, m.softmax(m.concatenate(m.softmax(few), m.softmax(m.image))))
    assert CONCATENATE not in templates(plan)


def test_a_part_that_others_read_stays_as_it_is(device_name: str) -> None:
    """The kernel of EXP could store its result over the part, were it alone there."""
    m = Model(1, 3, 5, 8)
    first, second = m.softmax(m.image), m.softmax(m.exp(m.image))
    whole = m.softmax(m.concatenate(first, second))
    other = m.apply("MUL", np.multiply, m.exp(second), first)
    plan = m.check(device_name, m.concatenate(whole, other))
    assert templates(plan).count(CONCATENATE) == 1  # of the output


def inside_a_slice(m: Model) -> int:
    few = m.apply("SLICE", lambda v, *_: v[..., :3], m.image, *m.indices([0, 0, 0, 0], [1, 3, 5, 3]))
    return m.concatenate(m.softmax(few), m.softmax(m.image))


def rows(m: Model) -> int:
    return m.concatenate(m.softmax(m.image), m.softmax(m.exp(m.image)), axis=1)


def constant_part(m: Model) -> int:
    constant = m.constant(m.x)
    m.values[constant] = m.x
    return m.concatenate(m.softmax(m.image), constant)


def same_part_twice(m: Model) -> int:
    x = m.softmax(m.image)
    return m.concatenate(x, x)


def part_of_two(m: Model) -> int:
    x, y, z = m.softmax(m.image), m.softmax(m.exp(m.image)), m.softmax(m.apply("NEG", np.negative, m.image))
    return m.concatenate(m.softmax(m.concatenate(x, y)), m.softmax(m.concatenate(y, z)))


@pytest.mark.parametrize("build", [inside_a_slice, rows, constant_part, same_part_twice, part_of_two])
def test_others_are_copied(build: Callable[[Model], int], device_name: str) -> None:
    m = Model(1, 3, 5, 8)
    assert templates(m.check(device_name, m.softmax(build(m)))).count(CONCATENATE) == 1


def test_channels_of_several_images_are_copied(device_name: str) -> None:
    m = Model(2, 3, 5, 8)
    both = m.concatenate(m.softmax(m.image), m.softmax(m.exp(m.image)))
    assert templates(m.check(device_name, m.softmax(both))).count(CONCATENATE) == 1


MOVEMENTS = (CONCATENATE, "movement/gather", "movement/strided")


def sliced(m: Model, x: int, axis: int, begin: int, end: int) -> int:
    shape = m.values[x].shape
    begins, sizes = [0] * len(shape), list(shape)
    begins[axis], sizes[axis] = begin, end - begin
    index = tuple(slice(b, b + s) for b, s in zip(begins, sizes, strict=True))
    return m.apply("SLICE", lambda x, *_: x[index], x, *m.indices(begins, sizes))


@pytest.mark.parametrize(
    ("shape", "axis", "begin", "end", "copies"),
    [
        ((1, 3, 5, 16), 3, 4, 12, 0),
        ((1, 3, 5, 14), 3, 8, 14, 0),  # with the lanes past the last channel
        ((1, 3, 5, 14), 3, 0, 6, 1),  # other channels would be in these lanes
        ((1, 3, 5, 16), 3, 2, 10, 1),
        ((2, 3, 5, 16), 3, 4, 12, 1),
        ((5, 2, 3, 6), 0, 1, 4, 0),
        ((1, 6, 5, 8), 1, 2, 4, 1),
    ],
)
def test_a_slice_is_read_where_it_is(
    device_name: str, shape: tuple[int, ...], axis: int, begin: int, end: int, copies: int
) -> None:
    m = Model(*shape)
    whole = m.softmax(m.image)
    plan = m.check(device_name, m.softmax(sliced(m, whole, axis, begin, end)))
    assert sum(t in MOVEMENTS for t in templates(plan)) == copies


def test_slices_of_slices_and_of_parts(device_name: str) -> None:
    m = Model(1, 3, 4, 8)
    x, y = m.softmax(m.image), m.softmax(m.exp(m.image))
    inner = sliced(m, m.concatenate(x, y), 3, 4, 16)
    parts = [m.softmax(sliced(m, inner, 3, 4 * i, 4 * i + 8)) for i in range(2)]
    plan = m.check(device_name, m.softmax(m.concatenate(*parts, m.softmax(inner))))
    assert not set(MOVEMENTS) & set(templates(plan))


def test_halves_that_are_joined_again(device_name: str) -> None:
    """YOLO's blocks do so: the result of a layer is cut in two, and both halves are joined with later results."""
    m = Model(1, 3, 4, 16)
    x = m.softmax(m.image)
    halves = [sliced(m, x, 3, 0, 8), sliced(m, x, 3, 8, 16)]
    plan = m.check(device_name, m.softmax(m.concatenate(*halves, m.softmax(halves[1]))))
    assert not set(MOVEMENTS) & set(templates(plan))


def test_a_slice_of_an_input_or_for_an_output_is_copied(device_name: str) -> None:
    m = Model(1, 3, 4, 16)
    x = m.softmax(m.softmax(sliced(m, m.image, 3, 0, 12)))
    plan = m.check(device_name, sliced(m, x, 3, 4, 12))
    softmax = "portable/softmax"
    assert templates(plan) == ["movement/strided", softmax, softmax, "movement/gather"]
