"""Resource variables belong to the opened model: its signatures share them, however they are run."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.frontend.stateful_models import assign, first_values, read
from tests.safety.drawn.states import StateJudge, stateful
from tests.support.models import Builder
from tflgpu.model.tensor_info import Quantization
from tflgpu.options import CpuPart, Options

SHAPE = (1, 6)
ONES = np.ones(SHAPE, np.float32)


def shared_variable(*, on_cpu: bool = False, kind: str = "float32", **form: Any) -> bytes:
    """``get`` adds an input to a variable, ``set`` assigns it."""
    get, put = Builder(), Builder()
    x = get.input(SHAPE, name="x", shape_signature=(-1, 6))
    value = read(get, "w", SHAPE)
    if on_cpu:
        value = get.without_kernel(value)
    y = get.add("ADD", [x, value], name="y")
    given = put.input(SHAPE, kind, name="value", **form)
    assign(put, "w", given)
    get.subgraph(put, [put.add("CAST", [given], SHAPE, "float32", name="done")], signature="set")
    return get.finish([y], signature="get")


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.parametrize("on_cpu", [False, True])
def test_signatures_share_a_variable(on_cpu: bool, device_name: str) -> None:
    options = Options(device=device_name, precision="fp32", cache="off")
    model = tflgpu.compile(shared_variable(on_cpu=on_cpu), options)
    put = model.signatures["set"]
    assert not model.run({"x": 0 * ONES})["y"].any()  # never written: zeros
    put.enqueue({"value": 3 * ONES})
    assert (model.run({"x": ONES})["y"] == 4).all()
    two = np.ones((2, 6), np.float32)
    assert (model.run({"x": two})["y"] == 4).all()  # another shape has the same variable
    other = tflgpu.compile(shared_variable(on_cpu=on_cpu), options)
    assert (other.run({"x": ONES})["y"] == 1).all()
    put.reset_state()
    assert (model.run({"x": ONES})["y"] == 1).all()


def test_an_interpreter_keeps_variables_when_it_is_resized(device_name: str) -> None:
    peer = tflgpu.Interpreter(model_content=shared_variable(), options=Options(device=device_name, cache="off"))
    peer.get_signature_runner("set")(value=2 * ONES)
    get = peer.get_signature_runner("get")
    for rows in (1, 3, 1):
        assert (get(x=np.ones((rows, 6), np.float32))["y"] == 3).all()
    peer.reset_all_variables()
    assert (get(x=ONES)["y"] == 1).all()


def test_a_variable_of_two_types_that_signatures_share_is_refused(device_name: str) -> None:
    form = {"kind": "int8", "quantization": Quantization([0.5], [0])}
    words = "variable 'w' cannot be kept: it holds .* several signatures use it"
    with pytest.raises(tflgpu.UnsupportedError, match=words):
        tflgpu.compile(shared_variable(**form), Options(device=device_name, cache="off"))


def test_a_variable_that_half_a_signature_would_round_stays_exact(device_name: str) -> None:
    """Signatures of fp16 that only replace rows would store it in half."""
    get, put = Builder(), Builder()
    first_values(get, {"w": np.zeros((4, 6), np.float32)})
    end = get.add("RESHAPE", [read(get, "w", (4, 6)), get.ints([4, 6])], (4, 6), name="y")
    row, place = put.input(SHAPE, name="row"), put.input((2,), "int32", name="place")
    written = put.add("DYNAMIC_UPDATE_SLICE", [read(put, "w", (4, 6)), row, place], (4, 6))
    assign(put, "w", written)
    get.subgraph(put, [put.add("RELU", [row], name="done")], signature="set")
    value = np.float32([[1000.1, 1 / 3, 70000, 1e-9, -2.7, 5]])
    options = Options(device=device_name, precision="fp16", cache="off")
    model = tflgpu.compile(get.finish([end], signature="get"), options)
    model.run({})  # CALL_ONCE
    model.signatures["set"].run({"row": value, "place": np.array([2, 0], np.int32)})
    np.testing.assert_array_equal(model.run({})["y"][2:3], value)


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_a_loop_whose_body_uses_a_variable(device_name: str, shared: Path) -> None:
    data = (shared / "faults" / "second" / "T5_while_variable.tflite").read_bytes()
    x = np.float32([1, -2, 3])
    for operators in ([], ["WHILE"]):
        options = Options(device=device_name, precision="fp32", cache="off", cpu_part=CpuPart(operators=operators))
        model = tflgpu.compile(data, options)
        first = model.run({"x": x, "n": np.array(3, np.int32)})["v"]
        again = model.run({"x": x, "n": np.array(2, np.int32)})["v"]
        np.testing.assert_allclose(again - first, 2 * x, rtol=1e-6)


def test_drawn_models_with_variables() -> None:
    """``python -m tests.safety.drawn.sweep --states`` draws more."""
    with StateJudge() as judge:
        for seed in (33, 58, 77, 121):
            verdict = judge.judge(stateful(Random(seed)))
            assert verdict.outcome == "right", f"{seed}: {verdict}"
