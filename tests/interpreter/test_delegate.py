"""``load_delegate`` under the names and with the options of TFLite's GPU delegate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tflgpu.interpreter import Delegate, Interpreter, load_delegate
from tflgpu.options import options_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
LIBRARY = "libtensorflowlite_gpu_delegate.so"


@pytest.mark.parametrize(
    "library", [LIBRARY, f"/usr/lib/{LIBRARY}", Path(f"./{LIBRARY}"), "tensorflowlite_gpu.dll", b"libLiteRtGpu.so"]
)
def test_the_gpu_delegate_is_loaded_under_its_names(library: Any) -> None:
    assert load_delegate(library).options == tflgpu.Options()


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"is_precision_loss_allowed": "1"}, {"precision": "auto"}),
        ({"is_precision_loss_allowed": 0}, {"precision": "fp32"}),
        ({"gpu_precision_loss_allowed": False}, {"precision": "fp32"}),
        ({"inference_priority1": 1, "is_precision_loss_allowed": -1}, {"precision": "fp32"}),
        ({"inference_priority1": 1, "inference_priority2": 0}, {"precision": "fp32"}),
        ({"serialization_dir": "/tmp/kernels", "model_token": "mobilenet"}, {"cache_dir": "/tmp/kernels"}),
        ({"gpu_backend": "cl", "experimental_flags": 9, "max_delegated_partitions": 3}, {}),
        ({"gpu_inference_for_sustained_speed": "true"}, {"tuning": "exhaustive"}),
        ({"inference_preference": 2}, {"tuning": "fast"}),
        ({"device": "Intel", "precision": "fp16", "quantized": "float"}, None),
        ({"device": 0}, None),
    ],
)
def test_its_options_choose_ours(given: dict[str, Any], chosen: dict[str, Any] | None) -> None:
    assert load_delegate(LIBRARY, given).options == options_of(given if chosen is None else chosen)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"presicion": "fp16"}, "unknown option 'presicion'; known are: backend, .*precision"),
        ({"gpu_backend": "gl"}, "option 'gpu_backend' cannot be 'gl'"),
        ({"experimental_flags": 4}, "option 'experimental_flags' cannot be 4"),
        ({"inference_preference": "fast"}, "cannot be 'fast'"),
        ({"inference_priority1": 4}, "cannot be 4"),
        ({"is_precision_loss_allowed": "perhaps"}, "cannot be 'perhaps'"),
        ({"precision": "fp8"}, "must be one of 'auto', 'fp32', 'fp16'"),
        ({"device": 1.5}, "an index of tflgpu.devices"),
        ({"batch": 2}, "unknown option 'batch'"),
    ],
)
def test_wrong_options_are_a_value_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"Failed to load delegate from {LIBRARY}\n.*{message}"):
        load_delegate(LIBRARY, given)
    with pytest.raises(ValueError, match=f"^[^\n]*{message}"):
        Delegate(LIBRARY, given)


def test_another_library_is_an_error_that_programs_expect() -> None:
    """Programs catch ValueError as the documentation shows, or OSError, which LiteRT raises for a missing library."""
    for expected in (ValueError, OSError):
        with pytest.raises(expected, match=r"Failed to load delegate from libedgetpu\.so\.1\n"):
            load_delegate("libedgetpu.so.1", {"device": "usb"})


def test_an_interpreter_runs_as_its_delegate_says(device_name: str) -> None:
    delegate = load_delegate(LIBRARY, {"device": device_name, "cpu_ops": ["SOFTMAX"], "is_precision_loss_allowed": 0})
    interpreter = Interpreter(DIGITS, experimental_delegates=[delegate])
    with pytest.warns(tflgpu.FallbackWarning, match=r"Options\.cpu_part\.operators"):
        interpreter.allocate_tensors()
    image = np.random.default_rng(0).random((1, 8, 8, 1), np.float32)
    interpreter.set_tensor(0, image)
    interpreter.invoke()
    (expected,) = tflgpu.compile(DIGITS, tflgpu.Options(precision="fp32", device=device_name)).run(image).values()
    np.testing.assert_allclose(interpreter.get_tensor(34), expected, atol=1e-6)
    with pytest.raises(ValueError, match="not to both"):
        Interpreter(DIGITS, experimental_delegates=[delegate], options=tflgpu.Options())


def test_delegates_of_litert_itself_have_nothing_to_choose() -> None:
    class Foreign:
        def _get_native_delegate_pointer(self) -> int:
            raise AssertionError("nobody has a use for it")

    Interpreter(DIGITS, experimental_delegates=[Foreign()])
