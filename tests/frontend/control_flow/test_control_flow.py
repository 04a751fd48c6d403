"""Loops and branches that only the values of a run decide: they run on the device, and give LiteRT's answers."""

from __future__ import annotations

import _thread
import threading
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.frontend.control_flow.control_models import (
    MODELS,
    Body,
    Kind,
    collatz,
    fading,
    growing,
    if_else,
    waiting,
    while_loop,
)
from tests.frontend.dynamic_models import DynamicBuilder
from tests.support.litert import kept_interpreter, run_again
from tests.support.models import WITHOUT_KERNEL
from tflgpu.frontend.lower import lower
from tflgpu.model.reader import read_model
from tflgpu.options import CacheFiles, Execution, Options


@pytest.mark.parametrize(("name", "precision"), [*((name, "fp32") for name in MODELS), ("fading", "fp16")])
def test_the_device_gives_litert_s_answers(name: str, precision: Literal["fp32", "fp16"], device_name: str) -> None:
    """In many runs of one compiled model: none of them sees anything of the one before."""
    build, draw = MODELS[name]
    data, rng = build(), np.random.default_rng(0)
    model = tflgpu.compile(data, Options(precision=precision, device=device_name, fallback="forbid"))
    judge, tolerance = kept_interpreter(data), 1e-5 if precision == "fp32" else 1e-2
    for _ in range(25):
        inputs = draw(rng)
        for got, wanted in zip(model.run(inputs).values(), run_again(judge, inputs), strict=True):
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def test_a_loop_comes_from_the_cache(tmp_path: Path, device_name: str) -> None:
    (data, draw), options = (
        (fading(), MODELS["fading"][1]),
        Options(device=device_name, cache_files=CacheFiles(path=tmp_path)),
    )
    inputs = draw(np.random.default_rng(1))
    first = tflgpu.compile(data, options)
    again = tflgpu.compile(data, Options(device=device_name, cache_files=CacheFiles(path=tmp_path), cache="require"))
    for a, b in zip(first.run(inputs).values(), again.run(inputs).values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_loop_that_never_ends_can_be_interrupted(device_name: str) -> None:
    model = tflgpu.compile(waiting(), Options(device=device_name, fallback="forbid"))
    interrupt = threading.Timer(0.2, _thread.interrupt_main)
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        model.run([np.int32(1), np.int32(0)])
    (left,) = model.run([np.int32(7), np.int32(3)]).values()
    assert left == -2


@pytest.mark.second_runtime(when=lambda: False)
def test_values_that_change_places_on_the_executor_for_gpus(device_name: str) -> None:
    options = Options(
        precision="fp16",
        device=device_name,
        execution=Execution(kernels="gpu", executor="persistent"),
        fallback="forbid",
    )
    model, rng = tflgpu.compile(collatz(exchanged=True), options), np.random.default_rng(2)
    assert model.executor == "persistent"
    for n, steps in ((6, 8), (1, 0), (7, 16), (5, 5)):
        pair = list(rng.standard_normal((2, 2, 3, 5)).astype(np.float32))
        last, count, left, right, _ = model.run([np.array([n], np.int32), *pair]).values()
        assert (last, count) == (1, steps)
        np.testing.assert_array_equal([left, right], pair[::-1] if steps % 2 else pair)


def test_a_profile_has_one_iteration_of_a_loop() -> None:
    data, draw = MODELS["counted_down"][0](), MODELS["counted_down"][1]
    model = tflgpu.compile(data)
    inputs = draw(np.random.default_rng(3))
    before = model.run(inputs)
    assert len(model.profile(inputs, runs=2).kernels) == model.report.kernels
    for a, b in zip(before.values(), model.run(inputs).values(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_that_a_constant_takes_is_all_that_is_left(taken: bool) -> None:
    builder = DynamicBuilder()
    x = builder.input((1, 4), name="x")
    ways: tuple[Body, Body] = (lambda b, v: [b.add("NEG", v, (1, 4))], lambda b, v: [b.without_kernel(*v)])
    decision = builder.constant(np.array(taken))
    kinds: list[Kind] = [("float32", (1, 4))]
    data = builder.finish(if_else(builder, decision, [x], kinds, *(ways if taken else ways[::-1])))
    lowered = lower(read_model(data))
    assert lowered.is_whole and [n.sources for n in lowered.graph.nodes] == [(0,)] * len(lowered.graph.nodes)


def test_states_that_nothing_follows_from_are_left_out() -> None:
    """The counter says how often the loop goes through, and the host knows that; the other value is not wanted."""
    builder = DynamicBuilder()
    x, limit = builder.input((1, 4)), builder.input((), "int32")
    kinds: list[Kind] = [("int32", ()), ("float32", (1, 4)), ("float32", (1, 4)), ("int32", ())]

    def again(b: DynamicBuilder, v: list[int]) -> list[int]:
        return [b.add("LESS", [v[0], v[3]], (), dtype="bool")]

    def step(b: DynamicBuilder, v: list[int]) -> list[int]:
        counted = b.add("ADD", [v[0], b.ints(1)], (), "int32")
        return [counted, b.add("SIN", [v[1]], (1, 4)), b.add("EXP", [v[2]], (1, 4)), v[3]]

    data = builder.finish(while_loop(builder, [builder.ints(0), x, x, limit], kinds, again, step)[1:2])
    (loop,) = lower(read_model(data)).calls.values()
    (body,) = loop.pieces
    assert len(body.graph.states) == 1 and len(body.graph.nodes) == 2 and body.graph.outputs == ()


def _loop_with(step: Body) -> bytes:
    builder = DynamicBuilder()
    x, limit = builder.input((1, 4)), builder.input((), "int32")
    kinds: list[Kind] = [("float32", (1, 4)), ("int32", ())]
    return builder.finish(
        while_loop(
            builder, [x, limit], kinds, lambda b, v: [b.add("GREATER", [v[1], b.ints(0)], (), dtype="bool")], step
        )
    )


def _nested(b: DynamicBuilder, values: list[int]) -> list[int]:
    decision = b.add("GREATER", [values[1], b.ints(2)], (), dtype="bool")
    ways: tuple[Body, Body] = (lambda b, v: [b.add("NEG", v, (1, 4))], lambda b, v: [b.add("SIN", v, (1, 4))])
    (y,) = if_else(b, decision, values[:1], [("float32", (1, 4))], *ways)
    return [y, b.add("SUB", [values[1], b.ints(1)], (), "int32")]


def test_what_a_loop_cannot_take_runs_on_the_cpu() -> None:
    with pytest.raises(tflgpu.UnsupportedError, match=r"value 1, float32 of shape \[2\], float32 of shape \[4\]"):
        tflgpu.compile(growing(), Options(fallback="forbid"))
    with pytest.raises(tflgpu.UnsupportedError, match=f"{WITHOUT_KERNEL} has no kernel"):
        tflgpu.compile(_loop_with(lambda b, v: [b.without_kernel(v[0]), v[1]]), Options(fallback="forbid"))
