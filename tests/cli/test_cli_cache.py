"""``tflgpu precompile-cache`` and ``tflgpu cache``, on the digits of ``examples/``."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.artifact.keys import make_key
from tests.cli.command import MODEL, as_json, invoke, succeed
from tests.cli.documented import check
from tests.conftest import missing
from tflgpu.cli.commands.cache import parse_size
from tflgpu.cli.own_processes import ProcessDied, in_own_process
from tflgpu.errors import CacheMissError

TOKEN = f"{tflgpu.model_token(MODEL.read_bytes()):016x}"


@pytest.fixture(autouse=True)
def _device() -> None:
    if not tflgpu.devices():
        missing("an OpenCL device")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def filled(folder: Path) -> Path:
    """A cache with the digits: a model and a kernel."""
    with tflgpu.compile(MODEL, tflgpu.Options(cache_files=tflgpu.CacheFiles(path=folder))):
        return folder


def fail(*arguments: object) -> str:
    """All that a command prints that must fail, its report included."""
    result = invoke(*arguments)
    assert result.exit_code == 1, result.output
    return result.output


def answer(cache: list[Path]) -> np.ndarray:
    """The answer of the digits' model with nothing but ``cache`` to start from."""
    with tflgpu.compile(MODEL, tflgpu.Options(cache_files=tflgpu.CacheFiles(path=cache), cache="require")) as model:
        (output,) = model.run(np.ones((1, 8, 8, 1), np.float32)).values()
        return output


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# precompile-cache


@pytest.mark.optimized  # answers of two processes are compared, bit by bit
def test_precompile_fills_the_cache_and_a_bundle(folder: Path, tmp_path: Path) -> None:
    """A second call compiles nothing, where nothing can be kept it fails, and to evict leaves the bundle alone."""
    bundle = tmp_path / "digits.bundle"
    found = as_json("precompile-cache", MODEL, "--cache-dir", folder, "--bundle", bundle)
    (model,) = found["models"]
    assert model["error"] is None and model["kernels"] > 0
    assert model["warm_seconds"] > 0 and model["cold_seconds"] > 0
    assert model["bytes"] == (folder / "v1" / model["entry"]).stat().st_size
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    assert found["bundle"] == {"file": str(bundle), "bytes": bundle.stat().st_size, "digest": digest, "key": None}
    with tflgpu.compile(MODEL, tflgpu.Options(cache="off")) as fresh:
        (expected,) = fresh.run(np.ones((1, 8, 8, 1), np.float32)).values()
    np.testing.assert_array_equal(answer([folder]), expected)
    np.testing.assert_array_equal(answer([bundle]), expected)
    again = as_json("precompile-cache", MODEL, "--cache-dir", folder)
    assert again["models"][0]["cold_seconds"] is None and again["models"][0]["warm_seconds"] > 0
    (tmp_path / "file").write_text("")
    failed = as_json("precompile-cache", MODEL, "--cache-dir", tmp_path / "file" / "cache", exit_code=1)
    assert "cannot be loaded" in failed["models"][0]["error"]
    assert any("cache" in warning for warning in failed["models"][0]["warnings"])
    check("precompile-cache", [found, again, failed])
    content = bundle.read_bytes()
    (entry,) = as_json("cache", "ls", "--cache-dir", bundle)["entries"]
    assert entry["kind"] == "model" and entry["used"] is None and entry["fault"] is None
    assert as_json("cache", "evict", "--all", "--cache-dir", bundle)["removed"] == []
    assert bundle.read_bytes() == content


def test_precompile_names_every_failure(folder: Path, tmp_path: Path) -> None:
    text, bundle = tmp_path / "text.tflite", tmp_path / "x.bundle"
    text.write_text("this is no model")
    arguments = ("precompile-cache", text, MODEL, tmp_path / "gone", "--cache-dir", folder, "--jobs", 2)
    printed = fail(*arguments, "--bundle", bundle)
    assert f"{text}: not a TensorFlow Lite model" in printed and "2 of 3 models failed" in printed
    assert not bundle.exists()


def test_own_process_brings_back_values_and_errors() -> None:
    assert in_own_process(os.getpid).value != os.getpid()
    with pytest.raises(ValueError, match="no size"):
        in_own_process(parse_size, "x")
    with pytest.raises(ProcessDied, match="exit code 3"):
        in_own_process(os._exit, 3)


# cache path, ls, verify, evict


def test_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLGPU_CACHE_DIR", str(folder))
    assert succeed("cache", "path").strip() == str(folder)
    assert as_json("cache", "path")["path"] == str(folder)
    assert not folder.exists(), "asking for the path makes nothing"


def test_listing(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = as_json("cache", "ls", "--cache-dir", filled)
    entries = {e["kind"]: e for e in found["entries"]}
    assert set(entries) == {"model", "kernel"}
    assert entries["model"]["token"] == TOKEN and entries["kernel"]["token"] is None
    assert (entries["model"]["model"], entries["kernel"]["model"]) == ("digits.tflite", None)
    assert entries["model"]["precision"] in ("fp32", "fp16") and entries["kernel"]["precision"] is None
    assert entries["model"]["device"] == entries["kernel"]["device"] == tflgpu.devices()[0].name
    assert all(e["fault"] is None and Path(e["file"]).stat().st_size == e["bytes"] for e in found["entries"])
    assert found["bytes"] == sum(e["bytes"] for e in found["entries"])
    monkeypatch.setenv("TFLGPU_CACHE_DIR", str(filled))
    printed = succeed("cache", "ls")
    assert TOKEN in printed and "digits.tflite" in printed and "(kernel)" in printed and "2 entries" in printed


def test_listing_a_place_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in fail("cache", "ls", "--cache-dir", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_listing_an_empty_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLGPU_CACHE_DIR", str(folder))
    assert succeed("cache", "ls").strip() == "0 entries, 0 bytes"


def test_verify(filled: Path) -> None:
    assert succeed("cache", "verify", "--cache-dir", filled).strip() == "2 entries, all sound"
    (entry,) = (filled / "v1" / "models").iterdir()
    flip_a_bit(entry)
    found = as_json("cache", "verify", "--cache-dir", filled, exit_code=1)
    assert found["checked"] == 2
    assert [d["file"] for d in found["damaged"]] == [str(entry)]
    printed = fail("cache", "verify", "--cache-dir", filled)
    assert str(entry) in printed and "compiled again" in printed and "delete" in printed


def test_evict_asks_what(filled: Path) -> None:
    assert "--all" in fail("cache", "evict", "--cache-dir", filled)
    assert "--all" in fail("cache", "evict", "--all", "--token", TOKEN, "--cache-dir", filled)
    assert "no token" in fail("cache", "evict", "--token", "digits", "--cache-dir", filled)
    assert "no size" in fail("cache", "evict", "--to-size", "big", "--cache-dir", filled)
    assert len(as_json("cache", "ls", "--cache-dir", filled)["entries"]) == 2


def test_evict_a_model(filled: Path) -> None:
    (entry,) = (filled / "v1" / "models").iterdir()
    size = entry.stat().st_size
    assert as_json("cache", "evict", "--token", "0" * 16, "--cache-dir", filled)["removed"] == []
    found = as_json("cache", "evict", "--token", TOKEN, "--cache-dir", filled)
    assert [r["file"] for r in found["removed"]] == [str(entry)] and found["bytes"] == size
    assert not entry.exists()
    with pytest.raises(CacheMissError):
        answer([filled])


def test_evict_by_age_and_size(filled: Path) -> None:
    (entry,) = (filled / "v1" / "models").iterdir()
    (kernel,) = (filled / "v1" / "kernels").iterdir()
    assert as_json("cache", "evict", "--older-than", 1, "--cache-dir", filled)["removed"] == []
    assert as_json("cache", "evict", "--to-size", "1GB", "--cache-dir", filled)["removed"] == []
    weeks_ago = entry.stat().st_mtime - 14 * 86_400
    os.utime(kernel, (weeks_ago, weeks_ago))
    printed = succeed("cache", "evict", "--older-than", 7, "--cache-dir", filled)
    assert f"removed {kernel}" in printed and "1 entry removed" in printed
    assert entry.exists() and not kernel.exists()
    assert succeed("cache", "evict", "--to-size", 0, "--cache-dir", filled).count("removed ") == 1
    assert not entry.exists()


def test_evict_all(filled: Path) -> None:
    assert len(as_json("cache", "evict", "--all", "--cache-dir", filled)["removed"]) == 2
    assert as_json("cache", "ls", "--cache-dir", filled)["entries"] == []


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1024", 1024), ("500MB", 500_000_000), ("2 GiB", 2 << 30), ("1.5kb", 1500), ("3B", 3)],
)
def test_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "2 G", "GB", "1e3", "five"])
def test_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_size(text)


# The other verbs


def test_benchmark_says_how_it_started(filled: Path) -> None:
    arguments = ("benchmark", MODEL, "--runs", 1, "--min-secs", 0, "--warmup-min-secs", 0)
    warm = as_json(*arguments, "--cache-dir", filled)["init_seconds"]
    assert warm["cold"] is None and "load" in warm["warm"]
    cold = as_json(*arguments, "--cache", "off")["init_seconds"]
    assert cold["warm"] is None and "load" not in cold["cold"]


def test_run_may_require_the_cache(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 8, 8, 1), np.float32))
    arguments = ("run", MODEL, tmp_path / "x.npy", "--cache-dir", folder)
    assert "precompile-cache" in fail(*arguments, "--cache", "require")
    first = as_json(*arguments)["outputs"]
    assert as_json(*arguments, "--cache", "require")["outputs"] == first


def test_a_signed_bundle_says_what_it_is_known_by(filled: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "digits.bundle"
    key = make_key(tmp_path / "key.pem")
    printed = succeed("precompile-cache", MODEL, "--cache-dir", filled, "--bundle", bundle, "--sign", key)
    known = dict(line.split() for line in printed.splitlines() if line.startswith("bundle_"))
    assert known.keys() == {"bundle_digest", "bundle_key"}
    with tflgpu.compile(MODEL, tflgpu.Options(cache="require", cache_files=tflgpu.CacheFiles(path=[bundle], **known))):
        pass
    bundle.write_bytes(bundle.read_bytes()[:-1] + b"x")
    for name, value in known.items():
        with pytest.raises(tflgpu.BundleError, match="is refused"):
            tflgpu.compile(MODEL, tflgpu.Options(cache_files=tflgpu.CacheFiles(path=[bundle], **{name: value})))
    assert "name one with --bundle" in fail("precompile-cache", MODEL, "--sign", key)
