"""Resource variables belong to the opened model: its signatures share them, however they are run."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.fallback.cpu_operators import strings
from tests.frontend.stateful_models import assign, first_values, read
from tests.safety.drawn.states import StateJudge, stateful
from tests.support.models import Builder
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.options import CpuPart, Options

Judge = pytest.importorskip("ai_edge_litert.interpreter").Interpreter

SHAPE = (1, 6)
ONES = np.ones(SHAPE, np.float32)


def shared_variable(*, on_cpu: bool = False) -> bytes:
    """``get`` adds an input to a variable, ``set`` assigns it."""
    get, put = Builder(), Builder()
    x = get.input(SHAPE, name="x", shape_signature=(-1, 6))
    value = read(get, "w", SHAPE)
    if on_cpu:
        value = get.without_kernel(value)
    y = get.add("ADD", [x, value], name="y")
    given = put.input(SHAPE, name="value")
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


def late_initialization() -> bytes:
    """``late`` assigns a variable, and a CALL_ONCE assigns it again; ``first`` has the CALL_ONCE alone."""
    late, first, put, once = Builder(), Builder(), Builder(), Builder()
    assign(once, "v", once.constant(5 * ONES))
    number = late.subgraph(once)
    for builder in (late, first):
        x = builder.input(SHAPE, name="x")
        if builder is late:
            assign(builder, "v", x)
        builder.op("CALL_ONCE", [], [], {"init_subgraph_index": number})
    late.subgraph(first, [first.add("ADD", [0, read(first, "v", SHAPE)], name="y")], signature="first")
    x = put.input(SHAPE, name="x")
    assign(put, "v", x)
    late.subgraph(put, [put.add("NEG", [x], name="y")], signature="put")
    return late.finish([late.add("ADD", [0, read(late, "v", SHAPE)], name="y")], signature="late")


def table(builder: Builder, number: int = 1) -> int:
    handle = builder.tensor((), "resource")
    builder.op("HASHTABLE", [], [handle], {"table_id": number, "key_dtype": "INT64", "value_dtype": "STRING"})
    return handle


def tables() -> bytes:
    """``other`` and ``words`` fill a table with unlike words, and ``look`` fills nothing."""
    words, other, look = Builder(), Builder(), Builder()
    found = []
    for builder, keys in ((words, [3, 7]), (other, [3, 8]), (look, [])):
        given = builder.input((2,), "int64", name="keys")
        if keys:
            texts = strings(builder, *(f"{key} of {keys}".encode() for key in keys))
            builder.op("HASHTABLE_IMPORT", [table(builder), builder.constant(np.array(keys, np.int64)), texts], [])
        inputs = [table(builder), given, strings(builder, b"none")]
        found.append(builder.add("HASHTABLE_FIND", inputs, (2,), "string", name="found"))
    words.subgraph(other, found[1:2], signature="other")
    words.subgraph(look, found[2:], signature="look")
    return words.finish(found[:1], signature="words")


def variables_beside_tables() -> bytes:
    """``get`` reads variables, ``set`` assigns one, and both fill one table in their ways: LiteRT has to keep all.

    LiteRT numbers variables from 0 on, and a table must have another number.
    """
    get, put = Builder(), Builder()
    for builder, key in ((get, 3), (put, 4)):
        texts = strings(builder, b"word")
        builder.op("HASHTABLE_IMPORT", [table(builder, 9), builder.constant(np.array([key], np.int64)), texts], [])
    y = get.add("NEG", [read(get, "w", SHAPE)], name="y")
    flags = get.add("LOGICAL_NOT", [read(get, "flags", (2,), "bool")], (2,), "bool", name="flags")
    value = put.input(SHAPE, name="value")
    assign(put, "w", value)
    get.subgraph(put, [put.add("NEG", [value], name="done")], signature="set")
    return get.finish([y, flags], signature="get")


def one_subgraph_of_two_signatures() -> bytes:
    builder = Builder()
    x, kept = builder.input(SHAPE, name="x"), builder.tensor(SHAPE, is_variable=True)
    y = builder.add("ADD", [kept, x], name="y")
    builder.op("TANH", [y], [kept])
    file = unpacked(builder.finish([y], signature="one"))
    file.signatureDefs.append(deepcopy(file.signatureDefs[0]))
    file.signatureDefs[1].signatureKey = b"two"
    return packed(file)


IN_LITERT = {
    late_initialization: ("put", "late", "first", "put", "late", "first"),
    tables: ("look", "other", "words", "look"),
    one_subgraph_of_two_signatures: ("one", "two", "two", "one"),
}


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.parametrize("model", IN_LITERT)
def test_what_only_litert_keeps_is_one_for_all_signatures(model: Callable[[], bytes], device_name: str) -> None:
    """LiteRT does the same, in two orders."""
    options = Options(device=device_name, precision="fp32", cache="off", cpu_part=CpuPart(trial_timeout=None))
    data = model()
    for calls in (IN_LITERT[model], IN_LITERT[model][::-1]):
        judge, peer = Judge(model_content=data), tflgpu.Interpreter(model_content=data, options=options)
        with tflgpu.compile(data, options) as compiled:
            assert all(operator.device == "cpu" for operator in compiled.report.operators)
            for number, call in enumerate(calls):
                signature = compiled.signatures[call]
                inputs = {i.name: np.full(i.shape, number + 3, i.dtype) for i in signature.inputs}
                wanted, found = (outcome(each.get_signature_runner(call), **inputs) for each in (judge, peer))
                assert wanted == found == outcome(signature.run, inputs)


def outcome(run: Callable[..., Any], *arguments: object, **inputs: object) -> object:
    """The results of a run, or "refused" before anything was written."""
    try:
        return {name: value.tolist() for name, value in run(*arguments, **inputs).items()}
    except (RuntimeError, ValueError) as error:
        assert "hashtable need to be initialized" in str(error)
        return "refused"


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.parametrize("code", ["IF", "WHILE"])
def test_tensors_of_called_subgraphs_keep_values_within_a_call_alone(code: str, device_name: str) -> None:
    builder, body, test = Builder(), Builder(), Builder()
    inner = [b.input(form, kind) for b in (body, test) for form, kind in (((), "int32"), (SHAPE, "float32"))]
    kept = body.tensor(SHAPE, is_variable=True)
    total = body.add("ADD", [kept, inner[1]])
    body.op("TANH", [total], [kept])
    number = builder.subgraph(body, [body.add("ADD", [inner[0], body.ints(1)], (), "int32"), total])
    other = builder.subgraph(test, [test.add("LESS", [inner[2], test.ints(3)], (), "bool")])
    x, results = builder.input(SHAPE, name="x"), [builder.tensor((), "int32"), builder.tensor(SHAPE, name="y")]
    if code == "IF":
        branches = {"then_subgraph_index": number, "else_subgraph_index": number}
        builder.op("IF", [builder.constant(np.array([True])), builder.ints(0), x], results, branches)
    else:
        called = {"cond_subgraph_index": other, "body_subgraph_index": number}
        builder.op("WHILE", [builder.ints(0), x], results, called)
    data = builder.finish([results[1]], signature="main")
    options = Options(device=device_name, precision="fp32", cache="off", cpu_part=CpuPart(trial_timeout=None))
    model, judge = tflgpu.compile(data, options), Judge(model_content=data).get_signature_runner("main")
    for _ in range(2):
        np.testing.assert_allclose(model.run({"x": ONES})["y"], judge(x=ONES)["y"], rtol=1e-6)


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


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_variables_that_litert_keeps_are_zeros_at_first(device_name: str) -> None:
    options = Options(device=device_name, precision="fp32", cache="off", cpu_part=CpuPart(trial_timeout=None))
    model = tflgpu.compile(variables_beside_tables(), options)
    first = model.run({})
    assert not first["y"].any() and first["flags"].all()
    model.signatures["set"].run({"value": 3 * ONES})
    assert (model.run({})["y"] == -3).all()
    model.reset_state()
    assert not model.run({})["y"].any()


def test_drawn_models_with_variables() -> None:
    """``python -m tests.safety.drawn.sweep --states`` draws more."""
    with StateJudge() as judge:
        for seed in (33, 58, 77, 121):
            verdict = judge.judge(stateful(Random(seed)))
            assert verdict.outcome == "right", f"{seed}: {verdict}"
