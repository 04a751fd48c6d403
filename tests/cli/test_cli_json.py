"""docs/tools/inspect.md and the JSON of the commands: every key is documented, and every documented key is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.cli.command import MODEL as DIGITS
from tests.cli.command import as_json, detector_model
from tests.cli.documented import check, documented
from tests.conftest import missing
from tests.support.models import Builder
from tests.support.quantized_models import quantized_model
from tflgpu.model.tensor_info import Quantization


def plain(value: Any) -> Any:
    """``value`` with lists for tuples."""
    return json.loads(json.dumps(value))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Quantized inputs and outputs, a free batch, a signature, and something that only the CPU can run."""
    builder = Builder()
    x = builder.input(
        (1, 4, 4, 8), "int8", name="x", quantization=Quantization([0.5], [3]), shape_signature=(-1, 4, 4, 8)
    )
    y = builder.add("DEQUANTIZE", [x], (1, 4, 4, 8), name="y")
    back = builder.without_kernel(builder.without_kernel(y), name="back")
    z = builder.add("QUANTIZE", [back], (1, 4, 4, 8), "int8", name="z", quantization=Quantization([0.25], [-1]))
    w = builder.input((1, 8), name="w", shape_signature=(-1, 8))
    held = builder.add("QUANTIZE", [w], (1, 8), "int8", name="held", quantization=Quantization([0.25], [0]))
    path = tmp_path / "model.tflite"
    path.write_bytes(builder.finish([z, held], signature="serve"))
    return path


@pytest.fixture(autouse=True)
def _device() -> None:
    if not tflgpu.devices():
        missing("an OpenCL device")


def test_inspect(model: Path, tmp_path: Path) -> None:
    outputs = [as_json("inspect", model), as_json("inspect", model, "--device", "auto")]
    outputs.append(
        plain(tflgpu.inspect(model, tflgpu.Options(numerics=tflgpu.Numerics(quantized="float"))).as_dict())
    )  # which no option gives
    quantized = tmp_path / "quantized.tflite"
    quantized.write_bytes(quantized_model())
    outputs.append(as_json("inspect", quantized, "--device", "auto"))
    check("inspect", outputs, opaque=("model.outputs[]",))
    facts = outputs[0]["model"]
    assert facts["inputs"][0].keys() == facts["outputs"][0].keys()
    assert outputs[0] == {"file": str(model), "bytes": model.stat().st_size} | plain(tflgpu.inspect(model).as_dict())


def test_diff() -> None:
    pytest.importorskip("ai_edge_litert")
    found = as_json("diff", DIGITS, "--runs", 2, "--bisect")
    check("diff", [found], opaque=("device", "bisection.first"))


def test_devices(tmp_path: Path) -> None:
    check("devices", [as_json("devices"), as_json("devices", "--measure", "--device", 0, "--cache-dir", tmp_path)])


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_run(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8, 1), np.float32))
    (tmp_path / "calibration").mkdir()
    (tmp_path / "labels.txt").write_text("\n".join("abcdefghij"))
    arguments = ("run", DIGITS, tmp_path / "x.npy", "--output", tmp_path)
    outputs = [as_json(*arguments), as_json(*arguments, "--labels", tmp_path / "labels.txt")]
    np.save(tmp_path / "calibration" / "x.npy", np.ones((1, 8, 8, 1), np.float32))
    outputs.append(as_json(*arguments, "--tolerance", 1e-6, "--calibration", tmp_path / "calibration"))
    for name, shape in {"boxes": (1, 3, 4), "scores": (1, 3, 3)}.items():
        np.save(tmp_path / f"{name}.npy", np.full(shape, 0.5, np.float32))
    inputs = (tmp_path / "boxes.npy", tmp_path / "scores.npy")
    outputs.append(as_json("run", detector_model(tmp_path / "m.tflite"), *inputs))
    check("run", outputs, opaque=("device",))


def test_benchmark() -> None:
    pytest.importorskip("ai_edge_litert")
    arguments = ("benchmark", DIGITS, "--runs", 1, "--min-secs", 0, "--warmup-min-secs", 0)
    outputs = [as_json(*arguments, "--cache", "off"), as_json(*arguments, "--litert", "--profile")]
    check("benchmark", outputs, opaque=("device", "init_seconds.cold", "init_seconds.warm"))


def test_profile(tmp_path: Path) -> None:
    outputs = [as_json("profile", DIGITS), as_json("profile", DIGITS, "--trace", tmp_path / "trace.json")]
    check("profile", outputs, opaque=("device", "kernels[]"))
    known = {key.split(".")[1].rstrip("[]") for key in documented("benchmark") if key.startswith("kernels[].")}
    assert outputs[0]["kernels"][0].keys() == known


SHOWN = {
    "model": ("signatures[].inputs", "signatures[].outputs", "subgraphs[].operators[].options"),
    "graph": ("states", "tensors", "nodes[].attributes"),
    "plan": ("target", "kernels[].node"),
    "source": ("functions",),
    "executable": (),
}


@pytest.mark.parametrize("stage", SHOWN)
def test_show(stage: str) -> None:
    check(f"show MODEL --stage {stage}", [as_json("show", DIGITS, "--stage", stage)], opaque=SHOWN[stage])


def test_cache(tmp_path: Path) -> None:
    place = ("--cache-dir", tmp_path / "cache")
    with tflgpu.compile(DIGITS, tflgpu.Options(cache_files=tflgpu.CacheFiles(path=tmp_path / "cache"))):
        pass
    check("cache path", [as_json("cache", "path")])
    check("cache ls", [as_json("cache", "ls", *place)])
    check("cache verify", [as_json("cache", "verify", *place)])
    check("cache evict", [as_json("cache", "evict", "--all", *place)])
