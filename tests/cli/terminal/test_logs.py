"""-v, -q and the log of the library."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import MODEL, invoke, unsupported_model
from tests.support.models import WITHOUT_KERNEL


def stderr_of(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stderr


def test_v_tells_what_is_done_before_or_behind_the_verb(device: tflgpu.Device, tmp_path: Path) -> None:
    profile = ("profile", MODEL, "--runs", 1, "--cache-dir", tmp_path)
    cold = stderr_of("-v", *profile)
    assert "the cache does not have models/" in cold and "planning kernels for 16 operators" in cold
    warm = stderr_of(*profile, "-v")
    assert "the cache has models/" in warm and "planning" not in warm and "took" not in warm
    assert "upload took" in stderr_of(*profile, "-vv")
    assert stderr_of(*profile) == "", "the switch is for one command"


def test_q_leaves_errors_alone(device: tflgpu.Device, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    model = unsupported_model(tmp_path / "m.tflite")
    arguments = ("profile", model, "--runs", 1, "--cache-dir", tmp_path / "cache")
    assert WITHOUT_KERNEL in stderr_of(*arguments)
    assert stderr_of(*arguments, "-q") == stderr_of("-q", *arguments) == ""
    assert invoke("-q", "profile", tmp_path / "none.tflite").stderr.startswith("error: ")


def test_the_log_of_the_library_is_python_s(
    device: tflgpu.Device, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tflgpu"):
        tflgpu.compile(MODEL, tflgpu.Options(cache_files=tflgpu.CacheFiles(path=tmp_path))).close()
        tflgpu.compile(MODEL, tflgpu.Options(cache_files=tflgpu.CacheFiles(path=tmp_path))).close()
    found = [
        record.getMessage().rpartition("/")[0] for record in caplog.records if record.name == "tflgpu.opening.opener"
    ]
    assert [text for text in found if text] == ["the cache does not have models", "the cache has models"]
