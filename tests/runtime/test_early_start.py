"""``Execution(start="now")``: LiteRT runs a model until its kernels are compiled, and states go along."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.frontend.stateful_models import assign, read
from tests.support.models import Builder
from tflgpu.opening import Opener
from tflgpu.options import CacheFiles, Execution, Options

pytest.importorskip("ai_edge_litert.interpreter")

SHAPE = (1, 6)
ONES = np.ones(SHAPE, np.float32)
DIGITS = Path("examples/digits/digits.tflite")


def now(device_name: str, **more: Any) -> Options:
    return Options(**{"device": device_name, "precision": "fp32", "cache": "off", "execution": NOW, **more})


NOW = Execution(start="now")


def counter() -> bytes:
    """``main`` adds its input to a variable and gives the sum; ``value`` gives the variable."""
    main, other = Builder(), Builder()
    total = main.add("ADD", [main.input(SHAPE, name="x"), read(main, "total", SHAPE)], name="y")
    assign(main, "total", total)
    zero = other.input(SHAPE, name="x")
    main.subgraph(other, [other.add("ADD", [zero, read(other, "total", SHAPE)], name="y")], signature="value")
    return main.finish([total], signature="main")


def test_kernels_take_over(device_name: str) -> None:
    image = np.random.default_rng(0).random((1, 8, 8, 1), np.float32)
    with tflgpu.compile(DIGITS, now(device_name)) as model:
        assert {o.device for o in model.report.operators} == {"cpu"} and not model.report.kernels
        assert "until its kernels are compiled" in str(model.report)
        (first,) = model.run(image).values()
        assert model.wait_ready() and model.is_ready
        assert model.report.kernels and {o.device for o in model.report.operators} == {"device"}
        (later,) = model.run(image).values()
    (wanted,) = tflgpu.compile(DIGITS, now(device_name, execution=Execution())).run(image).values()
    np.testing.assert_array_equal(later, wanted)
    np.testing.assert_allclose(first, wanted, atol=1e-5)


def test_variables_go_along_under_load(device_name: str) -> None:
    """Each of many calls in threads counts once, whoever runs it, and each signature changes hands by itself."""
    with tflgpu.compile(counter(), now(device_name)) as model:
        value, calls = model.signatures["value"], 0
        with ThreadPoolExecutor(3) as threads:
            while not (model.is_ready and value.is_ready) or calls < 60:
                sums = list(threads.map(lambda _: model.run({"x": ONES})["y"][0, 0], range(20)))
                calls += 20
                assert sorted(sums) == list(range(calls - 19, calls + 1))
                assert (value.run({"x": 0 * ONES})["y"] == calls).all()
        model.reset_state()
        assert (model.enqueue({"x": ONES}).wait()["y"] == 1).all()


def test_a_session_goes_along(device_name: str) -> None:
    builder = Builder()
    before = builder.input(SHAPE, name="state")
    after = builder.add("ADD", [builder.input(SHAPE, name="x"), before], name="state_out")
    data = builder.finish([after], signature="main")
    with tflgpu.compile(data, now(device_name)) as model:
        session, calls = model.session({"state_out": "state"}), 0
        while not model.is_ready or calls < 5:
            session.run("main", {"x": ONES})
            calls += 1
        np.testing.assert_array_equal(session.state("state"), calls * ONES)


def test_a_model_with_variable_tensors_starts_compiled(device_name: str) -> None:
    builder = Builder()
    x, kept = builder.input(SHAPE, name="x"), builder.tensor(SHAPE, is_variable=True)
    total = builder.add("ADD", [kept, x], name="y")
    builder.op("TANH", [total], [kept])
    assert tflgpu.compile(builder.finish([total]), now(device_name)).is_ready


def test_a_model_of_the_cache_starts_compiled(device_name: str, tmp_path: Path) -> None:
    options = now(device_name, cache="readwrite", cache_files=CacheFiles(path=tmp_path))
    assert tflgpu.compile(DIGITS, options).wait_ready()
    assert tflgpu.compile(DIGITS, options).is_ready


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_litert_goes_on_where_compiling_fails(device_name: str) -> None:
    builder = Builder()
    x = builder.input(SHAPE, name="x")
    data = builder.finish([builder.without_kernel(builder.add("NEG", [x]))])
    with tflgpu.compile(data, now(device_name, fallback="forbid")) as model:
        (first,) = model.run(ONES).values()
        with pytest.raises(tflgpu.UnsupportedError):
            model.wait_ready()
        assert not model.is_ready
        np.testing.assert_array_equal(next(iter(model.run(ONES).values())), first)


def test_what_a_compilation_does_not_expect_comes_from_waiting_too(
    device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise KeyError("unexpected")

    monkeypatch.setattr(Opener, "open", fail)
    model = tflgpu.compile(DIGITS, now(device_name))
    with pytest.raises(KeyError, match="unexpected"):
        model.wait_ready()
    assert not model.is_ready


def test_a_model_can_be_closed_while_it_is_compiled(device_name: str) -> None:
    model = tflgpu.compile(DIGITS, now(device_name))
    model.close()
    model.wait_ready()
    with pytest.raises(ValueError, match="closed"):
        model.run(np.zeros((1, 8, 8, 1), np.float32))
