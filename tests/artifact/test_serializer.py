"""A second start finds everything, whatever happened meanwhile, or nothing and never something wrong."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.conftest import usable
from tests.quick import RUNTIMES, on_first_runtime
from tests.support.models import Builder
from tflgpu.api import CompiledModel
from tflgpu.artifact import serializer
from tflgpu.errors import CacheMissError, CacheWarning
from tflgpu.model.model_source import ModelContent
from tflgpu.options import CacheFiles, CpuPart, Interface, Numerics, Options, Shapes
from tflgpu.runtime.opencl import program

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
COMPILE = "tflgpu.runtime.opencl.build._compiled"

# Modules that only compiling needs; a warm start that imported one of them would be a slow one.
COMPILER = [
    "concurrent.futures",
    "jinja2",
    "tflgpu.fallback",
    "tflite",
    "flatbuffers",
    "tflgpu.compiler",
    "tflgpu.plan",
    "tflgpu.ops",
    "tflgpu.target.measured_costs",
    "tflgpu.target.corrections",
    "tflgpu.target.probes",
    "tflgpu.measure.known_devices",
    "tflgpu.runtime.opencl.compiler_process",
    "safetensors",
    "diskcache",
]

SCRIPT = """
import json, sys, warnings
import numpy as np
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    import tflgpu
    from tflgpu.options import options_of
    path, options = sys.argv[1], options_of(json.loads(sys.argv[2]))
    model = tflgpu.compile(path, options)
    inputs = [np.full(i.shape, 0.5, i.dtype) for i in model.inputs]
    outputs = [v.tolist() for v in model.run(inputs).values()]
print(json.dumps({
    "outputs": outputs, "stages": list(model.seconds), "kernels": model.report.kernels,
    "imported": [m for m in json.loads(sys.argv[3]) if m in sys.modules],
    "warnings": [str(w.message) for w in caught if issubclass(w.category, tflgpu.CacheWarning)],
}))
"""


pytestmark = pytest.mark.usefixtures("fresh_warnings")


def start(path: Path, cache: Path, device: str, **options: object) -> dict[str, object]:
    """A new process compiles and runs the model."""
    chosen = json.dumps({"device": device, "cache_dir": str(cache), **options})
    command = [sys.executable, "-c", SCRIPT, str(path), chosen, json.dumps(COMPILER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def scaled(factor: float) -> bytes:
    builder = Builder()
    x = builder.input((1, 2, 2, 4), name="x")
    y = builder.add("MUL", [x, builder.constant(np.full(4, factor, np.float32))], (1, 2, 2, 4), name="y")
    return builder.finish([y])


def stages(model: CompiledModel) -> set[str]:
    return set(model.seconds)


@pytest.mark.quick(when=lambda precision, device_name: precision == "fp16" and on_first_runtime(device_name))
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_second_process_compiles_nothing(precision: str, tmp_path: Path, device_name: str) -> None:
    cold = start(DIGITS, tmp_path, device_name, precision=precision)
    warm = start(DIGITS, tmp_path, device_name, precision=precision)
    assert "plan" in cold["stages"] and "jinja2" in cold["imported"]  # type: ignore[operator]
    assert warm["stages"] == ["device", "hash", "load", "context", "build", "upload"]
    assert not warm["imported"]
    assert warm["outputs"] == cold["outputs"] and warm["kernels"] == cold["kernels"]
    assert not cold["warnings"] and not warm["warnings"]


def test_a_model_in_pieces_is_kept_whole(tmp_path: Path, device_name: str) -> None:
    options = Options(
        device=device_name,
        cache_files=CacheFiles(path=tmp_path),
        cpu_part=CpuPart(operators=["MAX_POOL_2D", "SOFTMAX"]),
    )
    x = np.full((1, 8, 8, 1), 0.5, np.float32)
    answers = []
    for expected in ({"plan", "interpreter"}, {"interpreter"}):
        with pytest.warns(tflgpu.FallbackWarning):
            model = tflgpu.compile(DIGITS, options)
        assert stages(model) & {"plan", "interpreter"} == expected
        answers.append(model.run(x)["probabilities"])
    np.testing.assert_array_equal(*answers)


def test_required_means_compiled_before(tmp_path: Path, device_name: str) -> None:
    options = Options(device=device_name, cache_files=CacheFiles(path=tmp_path))
    with pytest.raises(CacheMissError, match="precompile-cache"):
        tflgpu.compile(DIGITS, replace(options, cache="require"))
    tflgpu.compile(DIGITS, replace(options, cache="read"))
    with pytest.raises(CacheMissError):
        tflgpu.compile(DIGITS, replace(options, cache="require"))
    tflgpu.compile(DIGITS, options)
    assert "plan" not in stages(tflgpu.compile(DIGITS, replace(options, cache="require")))


def test_no_cache_leaves_no_trace(tmp_path: Path, device_name: str) -> None:
    tflgpu.compile(DIGITS, Options(device=device_name, cache_files=CacheFiles(path=tmp_path), cache="off"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "other",
    [
        {"precision": "fp16"},
        {"shapes": Shapes(batch=2)},
        {"interface": Interface(outputs=[tflgpu.inspect(DIGITS).operators[2].outputs[0]])},
        {"cpu_part": CpuPart(operators=["SOFTMAX"])},
        {"numerics": Numerics(quantized="float")},
    ],
    ids=lambda other: next(iter(other)),
)
def test_options_that_change_the_result_are_part_of_the_key(other: dict[str, object], tmp_path: Path) -> None:
    """Each of them would find the artifact of the others if it were left out."""
    options = Options(device=usable(RUNTIMES[0]), precision="fp32", cache_files=CacheFiles(path=tmp_path))
    tflgpu.compile(DIGITS, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tflgpu.FallbackWarning)
        assert "plan" in stages(tflgpu.compile(DIGITS, replace(options, **other)))  # type: ignore[arg-type]


def test_a_reused_token_is_no_proof(tmp_path: Path, device_name: str) -> None:
    """Other weights under the same token are compiled anew, and both models stay in the cache."""
    options = Options(device=device_name, precision="fp32", cache_files=CacheFiles(path=tmp_path, model_token=7))
    x = np.ones((1, 2, 2, 4), np.float32)
    for expected in ({"plan"}, set()):
        for factor in (2.0, 3.0):
            model = tflgpu.compile(scaled(factor), options)
            assert stages(model) & {"plan"} == expected
            np.testing.assert_array_equal(model.run(x)["y"], factor * x)


@pytest.mark.usefixtures("settled_files")
def test_with_a_token_an_unchanged_file_is_not_read(
    tmp_path: Path, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(scaled(2.0))
    os.utime(path, ns=(0, 0))
    options = Options(device=device_name, precision="fp32", cache_files=CacheFiles(path=cache, model_token=7))
    tflgpu.compile(path, options)
    with monkeypatch.context() as patch:
        patch.setattr(ModelContent, "bytes", property(lambda _: pytest.fail("the model file was read")))
        assert "plan" not in stages(tflgpu.compile(path, options))
    path.write_bytes(scaled(3.0))
    x = np.ones((1, 2, 2, 4), np.float32)
    np.testing.assert_array_equal(tflgpu.compile(path, options).run(x)["y"], 3 * x)


@pytest.mark.parametrize("what", ["driver", "version"])
def test_another_driver_or_version_compiles_anew(
    what: str, tmp_path: Path, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(device=device_name, cache_files=CacheFiles(path=tmp_path))
    tflgpu.compile(DIGITS, options)
    assert "plan" not in stages(tflgpu.compile(DIGITS, options))
    if what == "driver":
        own = next(d for d in tflgpu.devices() if d.platform == device_name).identity
        monkeypatch.setattr(tflgpu.Device, "identity", own._replace(driver="99.9"))
    else:
        monkeypatch.setattr(serializer, "_version", lambda: "99.9")
    assert "plan" in stages(tflgpu.compile(DIGITS, options))


def test_equal_kernels_of_other_weights_are_not_compiled_again(
    tmp_path: Path, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(device=device_name, precision="fp32", cache_files=CacheFiles(path=tmp_path))
    tflgpu.compile(scaled(2.0), options)
    monkeypatch.setattr(COMPILE, lambda *_: pytest.fail("the same source was compiled twice"))
    x = np.ones((1, 2, 2, 4), np.float32)
    np.testing.assert_array_equal(tflgpu.compile(scaled(5.0), options).run(x)["y"], 5 * x)


def test_a_binary_that_the_driver_refuses_is_compiled_anew(
    tmp_path: Path, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(device=device_name, precision="fp32", cache_files=CacheFiles(path=tmp_path))
    tflgpu.compile(scaled(2.0), options)
    x = np.ones((1, 2, 2, 4), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr("tflgpu.runtime.opencl.build.load_program", lambda *_: None)
        with pytest.warns(CacheWarning, match="refuses a binary"):
            model = tflgpu.compile(scaled(2.0), options)
        np.testing.assert_array_equal(model.run(x)["y"], 2 * x)
    monkeypatch.setattr(COMPILE, lambda *_: pytest.fail("the new binary was not kept"))
    np.testing.assert_array_equal(tflgpu.compile(scaled(2.0), options).run(x)["y"], 2 * x)


def test_no_driver_takes_garbage(device_name: str) -> None:
    """A damaged binary never gets this far, but if it did it would be a refusal."""
    from tflgpu.runtime.opencl.devices import choose
    from tflgpu.runtime.opencl.session import open_session

    assert program.load_program(open_session(choose(device_name)).context, b"no program" * 100) is None


def entries(cache: Path, kind: str) -> list[Path]:
    return sorted((cache / "v1" / kind).iterdir())


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "exchanged", "removed"])
def test_damage_is_a_miss_and_is_repaired(damage: str, tmp_path: Path, device_name: str) -> None:
    options = Options(device=device_name, precision="fp32", cache_files=CacheFiles(path=tmp_path))
    x = np.ones((1, 2, 2, 4), np.float32)
    tflgpu.compile(scaled(2.0), options)
    (mine,) = entries(tmp_path, "models")
    tflgpu.compile(scaled(3.0), options)
    (other,) = set(entries(tmp_path, "models")) - {mine}
    content = mine.read_bytes()
    middle = len(content) // 2
    mine.unlink()
    if damage != "removed":
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        versions = {"truncated": content[:middle], "flipped": changed, "empty": b"", "exchanged": other.read_bytes()}
        mine.write_bytes(versions[damage])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = tflgpu.compile(scaled(2.0), options)
    assert len(caught) == (damage != "removed")
    np.testing.assert_array_equal(model.run(x)["y"], 2 * x)
    assert "plan" in stages(model)
    assert "plan" not in stages(tflgpu.compile(scaled(2.0), options))


def test_an_entry_of_another_shape_is_a_miss(tmp_path: Path, device_name: str) -> None:
    """Sound by its checksum and key, but written by something that has other ideas of an artifact."""
    options = Options(device=device_name, precision="fp32", cache_files=CacheFiles(path=tmp_path))
    cache = serializer.open_cache(options)
    device = tflgpu.compile(scaled(2.0), replace(options, cache="off")).device
    assert cache is not None
    key = serializer.model_key(ModelContent(scaled(2.0)), options, device.identity, device.target(options))
    cache.store(key, {}, {"artifact": {"inputs": "none"}})
    with pytest.warns(CacheWarning, match="no compiled model"):
        model = tflgpu.compile(scaled(2.0), options)
    x = np.ones((1, 2, 2, 4), np.float32)
    np.testing.assert_array_equal(model.run(x)["y"], 2 * x)


def test_a_directory_that_vanishes_costs_only_time(tmp_path: Path, device_name: str) -> None:
    import shutil

    cache = tmp_path / "cache"
    options = Options(device=device_name, precision="fp32", cache_files=CacheFiles(path=cache))
    for _ in range(2):
        model = tflgpu.compile(scaled(2.0), options)
        shutil.rmtree(cache)
        x = np.ones((1, 2, 2, 4), np.float32)
        np.testing.assert_array_equal(model.run(x)["y"], 2 * x)


def test_pickles_come_back_from_the_cache(tmp_path: Path, device_name: str) -> None:
    model = tflgpu.compile(DIGITS, Options(device=device_name, cache_files=CacheFiles(path=tmp_path)))
    copy = pickle.loads(pickle.dumps(model))
    assert "plan" not in stages(copy)
    x = np.full((1, 8, 8, 1), 0.5, np.float32)
    np.testing.assert_array_equal(copy.run(x)["probabilities"], model.run(x)["probabilities"])


def test_state_comes_back_as_it_began(tmp_path: Path, shared: Path, device_name: str) -> None:
    path = shared / "models" / "hey_jarvis.tflite"
    options = Options(device=device_name, precision="fp32", cache_files=CacheFiles(path=tmp_path))
    answers = []
    for _ in range(2):
        model = tflgpu.compile(path, options)
        (info,) = model.inputs
        rng = np.random.default_rng(0)
        frames = [rng.integers(-128, 128, info.shape).astype(info.dtype) for _ in range(6)]
        answers.append([next(iter(model.run(frame).values())) for frame in frames])
    np.testing.assert_array_equal(*answers)
