"""The files that ``tflgpu run`` reads and writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, succeed
from tflgpu.cli.commands.run import save, summarize
from tflgpu.model.tensor_info import TensorInfo


@pytest.fixture
def digits(tmp_path: Path, held_out: tuple[np.ndarray, np.ndarray]) -> tuple[list[Path], list[int]]:
    """Three digits as a file each, and which they are."""
    images = held_out[0][:3, None, :, :, None] / np.float32(16)
    paths = [tmp_path / f"{number}.npy" for number in range(3)]
    for path, image in zip(paths, images, strict=True):
        np.save(path, image)
    return paths, held_out[1][:3].tolist()


def test_every_row_of_a_batch_has_an_answer(device: tflgpu.Device, digits: tuple[list[Path], list[int]]) -> None:
    paths, truth = digits
    arguments = ("run", MODEL, *paths, "--batch", 3, "--top", 2)
    labels = paths[0].with_name("labels.txt")
    labels.write_text("\n".join(f"digit {i}" for i in range(10)))
    (output,) = as_json(*arguments, "--labels", labels)["outputs"]
    assert [s["row"] for s in output["top"]] == [0, 0, 1, 1, 2, 2]
    assert [(s["index"], s["label"]) for s in output["top"][::2]] == [(t, f"digit {t}") for t in truth]
    lines = [line.split() for line in succeed(*arguments).splitlines()]
    assert ["row", "class", "score"] in lines
    assert [int(line[1]) for line in lines if len(line) == 3 and line[0].isdigit()][::2] == truth


def test_arrays_go_through_files_by_name(device: tflgpu.Device, digits: tuple[list[Path], list[int]]) -> None:
    """An .npz file that was written can be read as inputs."""
    folder = digits[0][0].parent
    np.savez(folder / "in.npz", image=np.load(digits[0][0]))
    assert as_json("run", MODEL, folder / "in.npz", "--output", folder / "out.npz")["files"] == [
        str(folder / "out.npz")
    ]
    with np.load(folder / "out.npz", allow_pickle=False) as written, tflgpu.compile(MODEL) as model:
        assert written.files == ["probabilities"]
        np.testing.assert_array_equal(written["probabilities"], *model.run(np.load(digits[0][0])).values())


def test_any_name_is_kept_in_a_file_of_arrays(tmp_path: Path) -> None:
    arrays = {"file": np.zeros(1), "a/b:0": np.ones((2, 3), np.int8), "../../x": np.full((), 2.0)}
    (path,) = save(tmp_path / "all.npz", arrays)
    with np.load(path, allow_pickle=False) as written:
        assert written.files == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(written[name], array)


def test_only_vectors_are_ranked_in_a_batch() -> None:
    info = TensorInfo("x", (2, 3), "float32", None)
    rows = np.array([[1, 3, 2], [9, 7, 8]], np.float32)
    assert [(s.row, s.index) for s in summarize(info, rows, [], 1, 2).top] == [(0, 1), (1, 0)]
    assert [(s.row, s.index) for s in summarize(info, rows.reshape(2, 1, 3, 1), [], 1, 2).top] == [(0, 1), (1, 0)]
    for other in (rows, rows.T, rows.reshape(3, 2, 1), np.float32(1), np.zeros((2, 0), np.float32)):
        assert summarize(info, np.asarray(other), [], 1, 1 if other is rows else 2).top == ()
