"""Calls with the arrays on the device that the last call had: what they held and where they were may have changed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import tflgpu
from tests.runtime.device_arrays import SHAPES, Array, arrays, fresh_outputs, on_device, three_of_each
from tests.support.arrays import assert_equal


def test_an_array_that_comes_again_may_have_moved(model: tflgpu.CompiledModel) -> None:
    """It is examined again if it is elsewhere, or has another queue; nothing keeps it behind the end of the model."""
    given = arrays(7)
    moved, targets = on_device(model, given), fresh_outputs(model)
    for seed in (7, 8):
        for name, value in on_device(model, arrays(seed)).items():
            moved[name].base_data = value.base_data
        model.run(moved, targets)
        assert_equal({name: a.get() for name, a in targets.items()}, model.run(arrays(seed)))
    parts = cl_array.to_device(model.queue, np.stack([arrays(seed)["x2"] for seed in (7, 8)]))
    moved["x2"].base_data = parts.base_data
    for part, seed in zip(parts, (7, 8), strict=True):
        moved["x2"].offset = part.offset
        model.run(moved, targets)
        expected = model.run({**arrays(8), "x2": arrays(seed)["x2"]})
        assert_equal({name: a.get() for name, a in targets.items()}, expected)
    moved["x2"] = moved["x2"].with_queue(cl.CommandQueue(model.queue.context))
    model.run(moved, targets)
    kept = weakref.ref(moved["x2"])
    model.close()
    del moved
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("kinds", [2, 3], ids=["bound", "copied"])
def test_the_same_arrays_come_again_between_other_calls(kinds: int, model: tflgpu.CompiledModel) -> None:
    """Where all arrays on the device are bound, a call like the one before begins with the launch."""
    model = tflgpu.compile(three_of_each(SHAPES[:kinds]), model.options)

    def fresh(seed: int) -> dict[str, Array]:
        return dict(list(arrays(seed).items())[:kinds])

    given, targets, elsewhere = on_device(model, fresh(0)), fresh_outputs(model), fresh_outputs(model)
    between: list[Callable[[], object]] = [
        lambda: None,
        lambda: model.run(fresh(20)),
        lambda: model.run(fresh(21), elsewhere),
        lambda: model.run(on_device(model, fresh(22)), elsewhere),
        lambda: model.enqueue(given, elsewhere),
        lambda: model.run({**given, "x0": fresh(24)["x0"]}, targets),
        lambda: model.run(given),
        lambda: model.reset_state(),
    ]
    for seed, call in enumerate(between):
        expected = model.run(fresh(seed))
        for name, value in fresh(seed).items():
            given[name].set(value)
        for _ in range(3):
            call()
            for _ in range(3):
                assert not model.run(given, targets)
                assert_equal({name: a.get() for name, a in targets.items()}, expected)


def test_a_list_that_comes_again_may_hold_other_arrays(model: tflgpu.CompiledModel) -> None:
    given, targets = list(on_device(model, arrays(1)).values()), fresh_outputs(model)
    for seed in (1, 2):
        expected = model.run(arrays(seed))
        for _ in range(2):
            given[:] = on_device(model, arrays(seed)).values()
            targets.update(fresh_outputs(model))
            for _ in range(2):
                model.run(given, targets)
                assert_equal({name: a.get() for name, a in targets.items()}, expected)
