"""``tflgpu inspect``, on the digits of ``examples/``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, fail, succeed, unsupported_model
from tests.support.models import WITHOUT_KERNEL
from tests.support.quantized_models import quantized_model
from tflgpu.options import Interface
from tflgpu.runtime.opencl.devices import choose


def test_inspect_needs_no_device(no_device: None) -> None:
    text = succeed("inspect", MODEL)
    assert "float32, 16 operators" in text
    assert re.search(r"input +image +1x8x8x1 +float32", text)
    assert re.search(r"output +probabilities +1x10 +float32", text)
    assert re.search(r"CONV_2D +\d+ +device", text)
    assert "all 16 operators can run on the device" in text
    assert "why not" not in text


def test_inspect_lists_every_operator(no_device: None) -> None:
    text = succeed("inspect", MODEL, "--operators")
    for o in tflgpu.inspect(MODEL).operators:
        assert re.search(rf"^ *{o.index} +{o.code} +{o.version} +device", text, re.MULTILINE)


@pytest.mark.device
def test_a_missing_tensor_is_told_by_the_option_that_lists_them() -> None:
    with pytest.raises(ValueError, match=r"no tensor named 'nope'; `tflgpu inspect --operators` lists them"):
        tflgpu.compile(MODEL, tflgpu.Options(interface=Interface(outputs=("nope",))))
    listed = succeed("inspect", MODEL, "--operators").splitlines()
    named = [line.split()[-1] for line in listed if re.match(r" *\d+ +[A-Z_0-9]+ +\d", line)]
    assert len(named) == 16
    tflgpu.compile(MODEL, tflgpu.Options(interface=Interface(outputs=(named[10],)), cache="off")).close()


@pytest.mark.device
def test_inspect_gives_reasons(tmp_path: Path) -> None:
    """Also for a model in pieces, with a device and without one."""
    path = unsupported_model(tmp_path / "m.tflite")
    for arguments in ((), ("--device", "auto")):
        text = " ".join(succeed("inspect", path, *arguments).split())
        assert f"{WITHOUT_KERNEL} has no kernel" in text
        assert "1 of 3 operators can run on the device in 1 partition, 2 on the CPU, 16 bytes cross" in text
        assert f"without 2 {WITHOUT_KERNEL} (operators 0, 1) it would be none" in text


def test_inspect_takes_options(no_device: None) -> None:
    names = [tflgpu.inspect(MODEL).operators[i].outputs[0] for i in (1, 3)]
    report = tflgpu.inspect(
        MODEL, tflgpu.Options(interface=tflgpu.Interface(outputs=names), cpu_part=tflgpu.CpuPart(operators=[0]))
    )
    assert [i.name for i in report.model.outputs] == names
    assert [o.index for o in report.operators if o.device == "cpu"] == [0]
    assert "'nosuch'" in fail("inspect", MODEL, "--signature", "nosuch")


def test_inspect_knows_what_runs_nowhere(shared: Path) -> None:
    path = shared / "models" / "invalid" / "model_invoking_error.tflite"
    assert "known neither to tflgpu nor to LiteRT" in " ".join(succeed("inspect", path).split())
    assert as_json("inspect", path)["operators"][0]["device"] == "unsupported"


def test_inspect_refuses_what_is_no_model(shared: Path) -> None:
    for name in ("empty", "random_bytes", "text_file", "tfl3_header_bad_offsets", "truncated"):
        message = fail("inspect", shared / "models" / "invalid" / f"{name}.tflite")
        assert re.search(r"model is empty|not a TensorFlow Lite model|model is damaged", message)


def test_inspect_explains_every_real_model(
    shared: Path, columns: Callable[[int], None], pytestconfig: pytest.Config
) -> None:
    """The quick suite takes every fourth."""
    columns(500)  # nothing is broken into lines; to undo `width` would leave one
    paths = sorted((shared / "models").glob("*.tflite"))
    assert len(paths) >= 30
    for path in paths if pytestconfig.getoption("all") else paths[::4]:
        report = tflgpu.inspect(path)
        text = succeed("inspect", path)
        assert report.model.kind in text
        assert all(o.code in text for o in report.operators), path.name
        assert all(i.name in text for i in (*report.model.inputs, *report.model.outputs)), path.name


def test_inspect_for_a_device(device: tflgpu.Device) -> None:
    with tflgpu.compile(MODEL, tflgpu.Options(device=device.index)) as compiled:
        expected = compiled.report
    found = as_json("inspect", MODEL, "--device", device.index)
    assert {key: found[key] for key in expected.as_dict()} == json.loads(json.dumps(expected.as_dict()))
    assert f"{expected.kernels} kernels" in succeed("inspect", MODEL, "--device", device.index)


@pytest.mark.device
def test_inspect_tells_what_of_a_quantized_model_runs_on_integers(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(quantized_model("int8"))
    unit = choose("auto").integer_unit
    text = succeed("inspect", path, "--device", "auto")
    if unit is None:
        assert "0 of 3 kernels with products multiply 8-bit integers" in text
        return
    assert f"2 of 3 kernels with products multiply 8-bit integers by {unit}; 3 operators on integers, " in text
    assert "1 in float: no kernel of integers for depthwise" in text
    path.write_bytes(quantized_model("uint8"))
    assert f"multiply 8-bit integers by {unit}" in succeed("inspect", path, "--device", "auto")
    assert "with products" not in succeed("inspect", path), "without a device it is not known"
    assert "with products" not in succeed("inspect", MODEL, "--device", "auto"), "a model of floats"
