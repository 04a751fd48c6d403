"""``tflgpu evaluate diff``: errors over a folder are those of ``tflgpu diff`` on its files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import as_json, fail, invoke, succeed
from tests.cli.documented import check
from tests.frontend.stateful_models import SHAPE, variable_tensor
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.evaluate.evaluations import deviations
from tflgpu.model.tensor_info import Quantization, TensorInfo


def test_a_folder_has_the_errors_of_its_files(shared: Path, tmp_path: Path) -> None:
    model = shared / "models" / "kws_ref_model_float32.tflite"
    generator = np.random.default_rng(0)
    files = [tmp_path / f"{number}.npy" for number in range(3)]
    for file in files:
        np.save(file, generator.normal(size=(1, 49, 10, 1)).astype(np.float32))
    found = as_json("evaluate", "diff", model, tmp_path)
    check("evaluate diff", [{key: found[key] for key in ("tolerance", "passed", "outputs")}], opaque=("outputs[]",))
    (whole,) = found["outputs"]
    each = [as_json("diff", model, file, "--runs", 1)["outputs"][0] for file in files]
    averages = [one["avg_error"] for one in each]
    assert whole["avg_error"] == pytest.approx(np.mean(averages), rel=1e-6)
    assert whole["std_dev"] == pytest.approx(np.std(averages), rel=1e-6)
    assert whole["max_error"] == max(one["max_error"] for one in each) > 0
    result = invoke("evaluate", "diff", model, tmp_path, "--tolerance", 0)
    assert result.exit_code == 1 and "OutputDiff[0]: avg_error=" in result.stdout


def test_the_text_is_that_of_the_tool(doubling: Path, vectors: Path) -> None:
    lines = succeed("evaluate", "diff", doubling, vectors, "--num-images", 4).splitlines()
    assert lines[0] == "Num evaluation runs: 4"
    assert [line.split(":")[0] for line in lines[1:4]] == [
        "Preprocessing latency",
        "Reference run latency",
        "Test run latency",
    ]
    assert re.match(r"OutputDiff\[0\]: avg_error=0, std_dev=0$", lines[4])
    assert lines[-1] == "PASS every output is within 0.001 of its range"


def test_rows_keep_what_deviations_need() -> None:
    info = TensorInfo("y", (2,), "int8", Quantization((0.5,), (0,), 0))
    rows = [
        {"errors": [{"average": 1.0, "largest": 2.0, "lowest": -3.0, "highest": 0.0}]},
        {"errors": [{"average": 2.0, "largest": 3.0, "lowest": 0.0, "highest": 5.0}]},
    ]
    (found,) = deviations(rows, [info])
    assert isinstance(found, Deviation)
    assert (found.quantum, found.avg_error, found.std_dev, found.max_error, found.extent) == (1.0, 1.5, 0.5, 3.0, 8.0)


def test_a_model_with_state_of_its_own_is_refused(shared: Path, vectors: Path) -> None:
    """Its answer to a file would depend on the files before, and on where an evaluation was interrupted."""
    message = fail("evaluate", "diff", shared / "models" / "hey_jarvis.tflite", vectors)
    assert "keeps state in resource variables" in message and "`tflgpu diff`" in message


def test_variable_tensors_are_reset(tmp_path: Path) -> None:
    """The model adds up its inputs: with a state of zeros its answer is the input, whatever came before."""
    (tmp_path / "model.tflite").write_bytes(variable_tensor())
    folder = tmp_path / "inputs"
    folder.mkdir()
    for number in range(3):
        np.save(folder / f"{number}.npy", np.full(SHAPE, 1 + number, np.float32))
    (output,) = as_json("evaluate", "diff", tmp_path / "model.tflite", folder)["outputs"]
    assert output["max_error"] == 0
    assert output["range"] == 3


def test_what_does_not_fit_is_named(doubling: Path, vectors: Path, tmp_path: Path) -> None:
    np.save(vectors / "3.npy", np.zeros((1, 5), np.float32))
    assert f"{vectors}/3.npy: " in fail("evaluate", "diff", doubling, vectors)
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path}/empty has no file that ends in" in fail("evaluate", "diff", doubling, tmp_path / "empty")
