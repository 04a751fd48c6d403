"""The page of errors names all that tflgpu raises on purpose, and each comes of a public call as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.quick import RUNTIMES
from tests.support.limited_devices import Simulation, limited
from tests.support.models import Builder
from tflgpu import errors
from tflgpu.graph.ir import EpilogueOp, Tensor, Value
from tflgpu.ops import declare
from tflgpu.ops.declaration import REGISTRY, Emitter

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "errors.md"
SHAPE = (1, 4, 4, 4)


def model(code: str = "NEG", shape: tuple[int, ...] = SHAPE) -> bytes:
    builder = Builder()
    return builder.finish([builder.add(code, [builder.input(shape)], shape)])


def compiled(data: bytes, cache: str = "off", **options: object) -> None:
    tflgpu.compile(data, tflgpu.Options(cache=cache, **options)).close()  # type: ignore[arg-type]


@pytest.fixture
def declared() -> Iterator[Callable[[Callable[[Tensor, Emitter], Tensor]], str]]:
    """Declares a custom operator of one input; gives its code."""

    def add(emits: Callable[[Tensor, Emitter], Tensor]) -> str:
        declare("Own", versions=1, inputs=1)(lambda site, emit: emits(site.input(0), emit))
        return "Own"

    yield add
    REGISTRY.pop("Own", None)


def test_the_page_names_all_errors_and_no_others() -> None:
    named = re.findall(r"^::: tflgpu\.(\w+)$", PAGE.read_text(), re.MULTILINE)
    kinds = errors.TflgpuError, Warning
    exported = {name for name, value in vars(tflgpu).items() if isinstance(value, type) and issubclass(value, kinds)}
    assert {*named} == {*errors.__all__} == exported
    assert len(named) == len(exported)
    listed = re.findall(r"^    (?:[├└]── )?(\w+(?:Error|Warning))\b", errors.__doc__ or "", re.MULTILINE)
    assert {*listed} == exported
    for name in exported:
        assert issubclass(getattr(tflgpu, name), errors.TflgpuError) == name.endswith("Error")


def test_model_errors() -> None:
    with pytest.raises(tflgpu.ModelError) as found:
        compiled(b"no model")
    assert isinstance(found.value, tflgpu.TflgpuError) and isinstance(found.value, RuntimeError)
    with pytest.raises(ValueError, match="model"):
        tflgpu.Interpreter(model_content=b"no model")


def test_usual_errors(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        tflgpu.compile(tmp_path / "missing.tflite")
    with pytest.raises(TypeError):
        tflgpu.compile(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="precision"):
        tflgpu.Options(precision="fp99")  # type: ignore[arg-type]


def test_unsupported_errors() -> None:
    options = {"cpu_part": tflgpu.CpuPart(operators=["NEG"]), "fallback": "forbid"}
    with pytest.raises(tflgpu.UnsupportedError) as found:
        compiled(model(), **options)
    assert len(found.value.reasons) == 1


def test_device_errors() -> None:
    with pytest.raises(tflgpu.DeviceError):
        compiled(model(), device="no such device")


class Unknown(float):
    """A parameter that becomes a name which the program does not have."""

    def __repr__(self) -> str:
        return "missing_name"


def test_build_errors(declared: Callable[[Callable[[Tensor, Emitter], Tensor]], str]) -> None:
    wrong = EpilogueOp("dequantize", (Value(0),), (Unknown(0.5), 0.0))
    code = declared(lambda x, emit: emit.node("map", [x], x.shape, None, (wrong,)))
    with pytest.raises(tflgpu.BuildError) as found:
        compiled(model(code), precision="fp32")
    assert "missing_name" in found.value.source
    assert "missing_name" in found.value.log


def test_internal_errors(declared: Callable[[Callable[[Tensor, Emitter], Tensor]], str]) -> None:
    def fails(x: Tensor, emit: Emitter) -> Tensor:
        raise KeyError("lost")

    with pytest.raises(tflgpu.InternalError) as found:
        compiled(model(declared(fails)))
    assert isinstance(found.value.__cause__, KeyError)


def test_errors_of_the_cache(tmp_path: Path) -> None:
    with pytest.raises(tflgpu.CacheMissError):
        compiled(model(), "require", cache_files=tflgpu.CacheFiles(path=tmp_path))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(tflgpu.CacheDirectoryError):
        compiled(model(), "readwrite", cache_files=tflgpu.CacheFiles(path=shared))
    bundle = tmp_path / "models.bundle"
    bundle.write_bytes(b"no bundle")
    with pytest.raises(tflgpu.BundleError):
        compiled(model(), "readwrite", cache_files=tflgpu.CacheFiles(path=bundle, bundle_digest="0" * 64))


def test_warnings(tmp_path: Path) -> None:
    with pytest.warns(tflgpu.FallbackWarning):
        compiled(model(), cpu_part=tflgpu.CpuPart(operators=["NEG"]))
    with pytest.warns(tflgpu.CacheWarning):
        compiled(model(), "readwrite", cache_files=tflgpu.CacheFiles(path=Path("/dev/null/cache")))
    package = tmp_path / "broken-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[tflgpu.operators]\nown = no_such_module\n")
    (tmp_path / "own.tflite").write_bytes(model("Own"))
    run = [sys.executable, "-m", "tflgpu", "inspect", str(tmp_path / "own.tflite")]
    told = subprocess.run(run, env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True)
    assert "broken" in told.stderr, told
    execution = tflgpu.Execution(kernels="gpu", executor="persistent")
    with limited(RUNTIMES[0], Simulation({"allocation_bytes": 1 << 16})), pytest.warns(tflgpu.DeviceWarning):
        compiled(model(shape=(1, 64, 64, 3)), execution=execution, precision="fp32")


def test_a_warning_of_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning of a model in which nothing can be kept in float."""
    monkeypatch.setattr("tflgpu.measure.half_check.HalfCheck.may_be_repaired", lambda *_: False)
    builder = Builder()
    large, small = (builder.constant(np.full(SHAPE, factor, np.float32)) for factor in (1e5, 1e-5))
    sums = builder.add("CUMSUM", [builder.add("MUL", [builder.input(SHAPE), large], SHAPE), builder.ints(1)], SHAPE)
    numerics = tflgpu.Numerics(half_check="always")
    with pytest.warns(tflgpu.PrecisionWarning):
        compiled(builder.finish([builder.add("MUL", [sums, small], SHAPE)]), precision="fp16", numerics=numerics)
