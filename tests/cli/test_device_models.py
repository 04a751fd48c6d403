"""Descriptions of devices in files: plans for devices that are not here, and files that are no descriptions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, fail, succeed
from tests.support.planning import plan_of
from tflgpu.codegen.render import render
from tflgpu.measure.known_devices import FOLDER, device_model, shipped_models
from tflgpu.options import options_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", shipped_models())
def test_every_shipped_device_gets_a_plan_without_a_device(name: str, no_device: None) -> None:
    """Within its limits, in each precision that it has."""
    described = device_model(name)
    limits = described.device.limits
    for precision in ("fp32", "fp16"):
        options = options_of({"precision": precision, "executor": "launch"})
        plan = plan_of(MODEL.read_bytes(), described.target(options), options)
        assert render(plan).names
        assert all(k.kernel.local_size <= limits.work_group_size for k in plan.kernels)
        assert all(k.kernel.workspace <= limits.local_vec4s for k in plan.kernels)


def test_a_dumped_device_gets_the_plan_that_it_has_here(tmp_path: Path, device: tflgpu.Device) -> None:
    path = tmp_path / "device.json"
    path.write_text(json.dumps(as_json("devices", "--describe", "--device", device.index)))
    assert device_model(str(path)).device == device.description
    show = ("show", MODEL, "--stage", "source")
    assert succeed(*show, "--device-model", path) == succeed(*show, "--device", device.index)


def test_passes_of_a_device_that_is_not_here(no_device: None) -> None:
    shown = as_json("show", MODEL, "--after", "convert_layouts", "--device-model", "mali-g610")
    assert shown["nodes"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no JSON", "no JSON of `tflgpu devices --describe`"),
        ("[]", "its format is 'list'"),
        ('{"format": 2}', "its format is 2"),
        ('{"format": 1, "source": ""}', "lacks the field 'device'"),
    ],
)
def test_a_file_that_is_no_description_says_what_is_expected(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "device.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"device\.json") as caught:
        device_model(str(path))
    assert said in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [("compute_units", 0), ("compute_units", "4"), ("type", "tpu")])
def test_a_field_of_another_kind_is_named(tmp_path: Path, field: str, value: object) -> None:
    data = json.loads((FOLDER / "mali-g610.json").read_text())
    data["device"][field] = value
    path = tmp_path / "device.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"device\.json"):
        device_model(str(path))


def test_an_unknown_name_is_answered_with_all_of_them() -> None:
    message = fail("show", MODEL, "--stage", "plan", "--device-model", "?")
    assert all(name in message for name in shipped_models())
    assert "not both" in fail("show", MODEL, "--stage", "plan", "--device-model", "mali-g610", "--device", "cpu")
    assert "goes with" in fail("show", MODEL, "--stage", "graph", "--device-model", "mali-g610")


def test_the_guide_lists_them() -> None:
    guide = (ROOT / "docs/guide/devices.md").read_text()
    for name in shipped_models():
        row = f"| `{name}` | {device_model(name).device.name} |"
        assert row in guide
