"""Tensors whose sizes depend on data have, in each run, LiteRT's sizes and values, and nothing of an earlier run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.frontend.dynamic_models import ELEMENTS, MODELS, boolean_mask, one_list
from tests.quick import on_first_runtime
from tests.support.litert import shapes_of_equal_runs
from tflgpu.options import CacheFiles, Options

pytestmark = pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")

RUNS = 200


@pytest.mark.quick(when=lambda declared, device_name: declared == 1 and on_first_runtime(device_name))
@pytest.mark.parametrize("declared", [1, ELEMENTS])
@pytest.mark.parametrize("name", MODELS)
def test_sizes_and_values_are_those_of_litert(name: str, declared: int, device_name: str) -> None:
    """declared: the size in the file where only a run can tell it; 1 as the converter writes it."""
    make, draw = MODELS[name]
    data = make(declared)
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name))
    sizes = {first for first, *_ in shapes_of_equal_runs(model, data, draw, RUNS)}
    assert len(sizes) > 1
    assert any(0 in s for s in sizes) or name not in ("boolean_mask", "suppression"), "an empty result should occur"


def test_an_interpreter_tells_the_sizes_of_the_last_run(device_name: str) -> None:
    interpreter = tflgpu.Interpreter(model_content=boolean_mask(), options=Options(device=device_name))
    interpreter.allocate_tensors()
    for kept in (3, 0, 8):
        x = np.where(np.arange(ELEMENTS) < kept, 1, -1).astype(np.float32)
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
        interpreter.invoke()
        (detail,) = interpreter.get_output_details()
        assert detail["shape"].tolist() == [kept]
        np.testing.assert_allclose(interpreter.get_tensor(detail["index"]), [10] * kept)


def test_an_output_on_the_device_must_have_room(device_name: str) -> None:
    """The room is for the size that the file declares; nothing is written if the run's size is another."""
    import pyopencl.array

    model = tflgpu.compile(boolean_mask(ELEMENTS), Options(precision="fp32", device=device_name))
    (name,) = (info.name for info in model.outputs)
    place = pyopencl.array.zeros(model.queue, ELEMENTS, np.float32)
    model.run(np.ones(ELEMENTS, np.float32), {name: place})
    assert place.get().tolist() == [10] * ELEMENTS
    with pytest.raises(ValueError, match=r"has shape \[0\] in this run; \[8\] was expected"):
        model.run(-np.ones(ELEMENTS, np.float32), {name: place})


def test_compiled_models_of_unknown_sizes_are_kept_in_the_cache(device_name: str, tmp_path: Path) -> None:
    x = one_list(np.random.default_rng(1))
    options = Options(precision="fp32", device=device_name, cache_files=CacheFiles(path=tmp_path))
    (first,), (second,) = (tflgpu.compile(boolean_mask(), options).run(x).values() for _ in range(2))
    np.testing.assert_array_equal(first, second)
