"""How many kernels networks of many branches have, and how often their functions are compiled."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.support.models import Builder
from tests.support.planning import plan_of
from tests.support.targets import CPU, H200
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import assemble
from tflgpu.model.reader import read_model
from tflgpu.plan.program_parts import COPIES, MANY_FUNCTIONS, OF_EACH, find_parts, find_runs
from tflgpu.target import Target

SEED = 37


Intervals = list[list[str]]


def kernels_of(intervals: Intervals) -> list[set[str]]:
    """The functions of each kernel, of runs that are checked to go through all launches in order."""
    runs, functions = find_runs(intervals), [function for interval in intervals for function in interval]
    assert [place for run in runs for place in run.places] == list(range(len(functions)))
    assert all(run.kernel != following.kernel for run, following in pairwise(runs))
    kernels: list[set[str]] = [set() for _ in range(1 + max(run.kernel for run in runs))]
    for run in runs:
        kernels[run.kernel].update(functions[run.places.start : run.places.stop])
    return kernels


def layers(*sizes: int, repeat: int) -> Intervals:
    """A function in each interval; layers of so many functions, one after another, repeatedly."""
    return [[f"{layer}_{i}"] for layer, size in enumerate(sizes) for i in range(size)] * repeat


def test_few_functions_are_one_kernel() -> None:
    assert len(find_runs(layers(MANY_FUNCTIONS, repeat=9))) == 1


def test_functions_that_do_not_repeat_are_in_one_kernel_each() -> None:
    sizes = [len(kernel) for kernel in kernels_of(layers(160, repeat=1))]
    assert sum(sizes) == 160 and len(sizes) == -(-160 // OF_EACH) and max(sizes) - min(sizes) < OF_EACH


@pytest.mark.parametrize("repeat", [2, 20])
def test_layers_that_repeat_are_compiled_once(repeat: int) -> None:
    kernels = kernels_of(layers(70, 60, 50, repeat=repeat))
    assert sum(map(len, kernels)) == 180 and max(map(len, kernels)) <= OF_EACH


def test_functions_in_any_order_are_compiled_a_few_times() -> None:
    """Whatever the order, the number of copies is bounded by the number of functions, not by that of launches."""
    random = np.random.default_rng(SEED)
    for functions in (50, 200):
        intervals = [list(map(str, random.integers(functions, size=3))) for _ in range(300)]
        kernels = kernels_of(intervals)
        assert max(map(len, kernels)) <= OF_EACH
        assert sum(map(len, kernels)) <= COPIES * functions


def test_parts_have_about_as_much_text_each() -> None:
    sizes = [int(size) for size in np.random.default_rng(SEED).integers(100, 9000, 200)]
    parts = find_parts(sizes)
    texts = [sum(size for size, own in zip(sizes, parts, strict=True) if own == part) for part in range(8)]
    assert set(parts) == set(range(8)) and max(texts) - min(texts) <= max(sizes)
    assert find_parts(sizes[:MANY_FUNCTIONS]) == [0] * MANY_FUNCTIONS


def scales_with_attention(sides: tuple[int, ...], blocks: int) -> bytes:
    """Blocks of CoaT's kind, for images of several scales.

    Each has attention over channels beside depthwise convolutions of three windows; resized images join other scales.
    """
    builder = Builder(SEED)
    images = [builder.input((1, side, side, 24)) for side in sides]
    for _ in range(blocks):
        images = [_block(builder, image) for image in images]
        smaller = [builder.shape(image)[1] for image in images]
        resized = [
            builder.add("RESIZE_BILINEAR", [image, builder.ints([side, side])], (1, side, side, 24))
            for image, side in zip(images, smaller[1:] + smaller[:1], strict=True)
        ]
        images = [builder.add("ADD", [a, b]) for a, b in zip(images, resized[-1:] + resized[:-1], strict=True)]
    return builder.finish(images)


def _block(builder: Builder, image: int) -> int:
    _, side, _, channels = shape = builder.shape(image)
    rows = side * side, channels
    image = builder.add("ADD", [image, builder.depthwise(image)])
    joint = builder.add(
        "FULLY_CONNECTED",
        [builder.add("RESHAPE", [image, builder.ints(rows)], rows), builder.weights(3 * channels, channels)],
        (rows[0], 3 * channels),
    )
    size = builder.ints(rows)
    queries, keys, values = (
        builder.add("SLICE", [joint, builder.ints([0, part * channels]), size], rows) for part in range(3)
    )
    largest = builder.add("REDUCE_MAX", [keys, builder.ints([0])], (1, channels), keep_dims=True)
    powers = builder.add("EXP", [builder.add("SUB", [keys, largest])])
    total = builder.add("SUM", [powers, builder.ints([0])], (1, channels), keep_dims=True)
    shares = builder.add("TRANSPOSE", [builder.add("DIV", [powers, total]), builder.ints([1, 0])], rows[::-1])
    context = builder.add("BATCH_MATMUL", [shares, values], (channels, channels))
    attended = builder.add("BATCH_MATMUL", [queries, context], rows)
    picture, third = builder.add("RESHAPE", [values, builder.ints(shape)], shape), channels // 3
    windows = []
    for part, window in enumerate((3, 5, 7)):
        begin, extent = builder.ints([0, 0, 0, part * third]), (1, side, side, third)
        taken = builder.add("SLICE", [picture, begin, builder.ints(extent)], extent)
        windows.append(builder.depthwise(taken, window))
    joined = builder.add("CONCATENATION", windows, shape, axis=3)
    encoded = builder.add("MUL", [queries, builder.add("RESHAPE", [joined, builder.ints(rows)], rows)])
    mixed = builder.add("ADD", [attended, encoded])
    result = builder.add("FULLY_CONNECTED", [mixed, builder.weights(channels, channels)], rows)
    return builder.add("ADD", [builder.add("RESHAPE", [result, builder.ints(shape)], shape), image])


@pytest.mark.parametrize("target", [CPU, H200], ids=["cpu", "nvidia"])
def test_no_more_kernels_than_operators(target: Target) -> None:
    """And a function is compiled a few times at most, although each block has its launches."""
    data = scales_with_attention((28, 14, 7), blocks=4)
    plan = plan_of(data, target)
    source = render(plan)
    _, executable = assemble(source, link(plan, source.names), target)
    operators = sum(len(subgraph.operators) for subgraph in read_model(data).subgraphs)
    assert len(source.functions) < len(plan.kernels) / 3 < operators / 3
    if executable.persistent:
        persistent = executable.persistent
        assert 1 < len(persistent.functions) < len(persistent.runs), "blocks run the same kernels"
        copies = {
            (run.function, executable.launches[launch].function)
            for run in persistent.runs
            for launch in persistent.order[run.begin : run.end]
        }
        assert len(copies) <= COPIES * len(source.functions)
