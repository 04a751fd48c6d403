"""Promises of compile and run besides right numbers."""

from __future__ import annotations

import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.conftest import missing
from tests.support.models import Builder
from tflgpu.runtime.opencl.devices import choose

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def model() -> tflgpu.CompiledModel:
    if not tflgpu.devices():
        missing("an OpenCL device")
    return tflgpu.compile(DIGITS / "digits.tflite", tflgpu.Options(precision="fp32"))


class Tagged(np.ndarray):
    """An array of another class."""


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.load(DIGITS / "held_out.npz")["images"][..., None].astype(np.float32) / 16


def test_inputs_by_name_in_order_or_alone(model: tflgpu.CompiledModel, images: np.ndarray) -> None:
    image = images[:1]
    results = [model.run(given)["probabilities"] for given in ({"image": image}, [image], image)]
    assert all(np.array_equal(results[0], other) for other in results[1:])
    assert results[0].dtype == np.float32


def test_wrong_inputs_say_what_was_expected(model: tflgpu.CompiledModel, images: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"shape \[8, 8\]; \[1, 8, 8, 1\] was expected"):
        model.run(images[0, :, :, 0])
    with pytest.raises(ValueError, match="element type int64; float32 was expected"):
        model.run(images[:1].astype(np.int64))
    with pytest.raises(ValueError, match="the model has \\['image'\\]"):
        model.run({"picture": images[:1]})
    with pytest.raises(ValueError, match="2 inputs were given"):
        model.run([images[:1], images[:1]])


def test_pinned_arrays_are_inputs_like_others(model: tflgpu.CompiledModel, images: np.ndarray) -> None:
    pinned = model.pinned_array("image")
    assert pinned.shape == (1, 8, 8, 1) and pinned.dtype == np.float32 and not pinned.any()
    for image in images[:3]:
        pinned[0] = image
        np.testing.assert_array_equal(model.run(pinned)["probabilities"], model.run(image[None])["probabilities"])
    with pytest.raises(ValueError, match=r"no input 'picture'; it has \['image'\]"):
        model.pinned_array("picture")


def test_results_are_the_callers_own(model: tflgpu.CompiledModel, images: np.ndarray) -> None:
    first = model.run(images[:1])["probabilities"]
    kept = first.copy()
    model.run(images[1:2])
    np.testing.assert_array_equal(first, kept)


def test_strides_and_classes_of_arrays_do_not_matter(model: tflgpu.CompiledModel, images: np.ndarray) -> None:
    image = images[:1]
    expected = model.run(image)["probabilities"]
    read_only = image.copy()
    read_only.flags.writeable = False
    turned = np.ascontiguousarray(image.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    other_order = image.astype(image.dtype.newbyteorder())
    for given in (turned, images[::2][:1], read_only, other_order, image.view(Tagged)):
        np.testing.assert_array_equal(model.run([given])["probabilities"], expected)


def test_threads_share_a_model(model: tflgpu.CompiledModel, images: np.ndarray) -> None:
    expected = [model.run(image[None])["probabilities"] for image in images[:64]]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda image: model.run(image[None])["probabilities"], images[:64]))
    np.testing.assert_array_equal(found, expected)


def test_a_model_survives_pickling(model: tflgpu.CompiledModel, images: np.ndarray) -> None:
    copy = pickle.loads(pickle.dumps(model))
    assert copy.options == model.options
    np.testing.assert_array_equal(copy.run(images[:1])["probabilities"], model.run(images[:1])["probabilities"])


def test_a_closed_model_refuses_to_run(model: tflgpu.CompiledModel, images: np.ndarray) -> None:
    with tflgpu.compile(DIGITS / "digits.tflite") as short_lived:
        short_lived.run(images[:1])
    short_lived.close()
    with pytest.raises(ValueError, match="closed"):
        short_lived.run(images[:1])
    assert short_lived.report.kernels


@pytest.mark.parametrize("executor", ["auto", "launch", "persistent"])
def test_a_closed_model_frees_the_device_at_once(executor: str, device_name: str) -> None:
    """Not when Python looks for cycles of objects again: until then there may be no room for another model."""
    builder = Builder()
    x = np.ones((1, 4), np.float32)
    y = builder.add("ABS", [builder.input(x.shape)], (1, 4))
    model = tflgpu.compile(
        builder.finish([y]), tflgpu.Options(device=device_name, execution=tflgpu.Execution(executor=executor))
    )
    model.run(x)
    model.enqueue(x).wait()
    (instance,) = model._runner.instances.values()
    engine = weakref.ref(instance._engines[0])
    del instance
    gc.disable()
    try:
        model.close()
        assert engine() is None
    finally:
        gc.enable()


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="precision is 'fp64'; it must be one of 'auto', 'fp32', 'fp16'"):
        tflgpu.Options(precision="fp64")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give a list of tensor names"):
        tflgpu.Options(interface=tflgpu.Interface(outputs="probabilities"))
    with pytest.raises(ValueError, match="no tensor named 'nothing'"):
        tflgpu.inspect(DIGITS / "digits.tflite", tflgpu.Options(interface=tflgpu.Interface(outputs=["nothing"])))
    with pytest.raises(ValueError, match="no signature 'nothing'; it has"):
        tflgpu.inspect(DIGITS / "digits.tflite", tflgpu.Options(interface=tflgpu.Interface(signature="nothing")))


def test_an_unknown_device_lists_those_there_are(model: tflgpu.CompiledModel) -> None:
    with pytest.raises(tflgpu.DeviceError, match=r"no OpenCL device matches 'abacus'; found 0: "):
        tflgpu.compile(DIGITS / "digits.tflite", tflgpu.Options(device="abacus"))


def test_a_device_goes_by_its_type_or_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for device in (d for d in tflgpu.devices() if d.platform != "Oclgrind"):  # a simulator goes by its name only
        best = next(d for d in tflgpu.devices() if d.type == device.type)
        assert choose(device.type.upper()) == best
        monkeypatch.setenv("TFLGPU_DEVICE", device.type)
        assert choose("auto") == best
    monkeypatch.setenv("TFLGPU_DEVICE", "abacus")
    with pytest.raises(tflgpu.DeviceError, match="no OpenCL device matches TFLGPU_DEVICE=abacus; found 0: "):
        choose("auto")


def test_errors_survive_pickling() -> None:
    unsupported = pickle.loads(pickle.dumps(tflgpu.UnsupportedError(["one", "two"])))
    assert unsupported.reasons == ("one", "two")
    failed = pickle.loads(pickle.dumps(tflgpu.BuildError("refused", "source", "log")))
    assert (failed.source, failed.log) == ("source", "log")
