"""Rows from images, arrays and Parquet, predicted in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import tflgpu
from tests.batch.models import check, columns, exponentials
from tests.cli.command import DIGITS, as_json, fail, succeed
from tflgpu.batch.arrow_columns import arrow_column, numpy_column
from tflgpu.batch.prediction import Prediction, open_rows, predict
from tflgpu.options import Options, Shapes


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DIGITS / "held_out.npz") as data:
        return data["images"][..., None].astype(np.float32) / 16, data["labels"]


def classes(folder: Path) -> np.ndarray:
    found: np.ndarray = numpy_column("", pq.read_table(folder)["probabilities"]).argmax(-1)
    return found


@pytest.mark.device
def test_rows_of_arrays(tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = digits
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "b.npy", images[:10])
    np.save(tmp_path / "in" / "c.npy", images[10])
    np.save(tmp_path / "in" / "a.npy", images[11:13])
    result = as_json("predict", DIGITS / "digits.tflite", tmp_path / "in", "--out", tmp_path / "out", "--batch", 4)
    assert result["rows"] == 13 and result["folder"] == str(tmp_path / "out")
    table = pq.read_table(tmp_path / "out")
    assert [Path(path).name[0] for path in table["path"].to_pylist()] == ["a"] * 2 + ["b"] * 10 + ["c"]
    assert table["row"].to_pylist() == [0, 1, *range(10), 0]
    np.testing.assert_array_equal(classes(tmp_path / "out"), [*labels[11:13], *labels[:10], labels[10]])


@pytest.mark.device
def test_images_are_read_as_run_reads_them(tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    grey = np.rint(digits[0][:5, ..., 0] * 255).astype(np.uint8)
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for path, pixels in zip(paths, grey, strict=True):
        Image.fromarray(pixels).resize((20, 20)).save(path)
    succeed("predict", DIGITS / "digits.tflite", *paths, "--out", tmp_path / "out", "--mean", 0, "--std", 255)
    np.testing.assert_array_equal(classes(tmp_path / "out"), digits[1][:5])


@pytest.mark.device
def test_parquet_keeps_what_is_no_input(tmp_path: Path) -> None:
    given = columns(7)
    names = pa.array(["a", None, "c", "d", None, "f", "g"])
    nested = pa.array([row.tolist() for row in given["x"]], pa.list_(pa.list_(pa.float32())))
    table = pa.table({"name": names, "pixels": nested, "w": arrow_column(given["w"].reshape(7, -1))})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=3)
    prediction = Prediction(exponentials(), Options(shapes=Shapes(batch=2), precision="fp32"), {"x": "pixels"}, None)
    rows = open_rows([tmp_path / "in.parquet"], b"", (), None, None)
    assert rows.count == 7
    steps: list[None] = []
    predict(rows, prediction, tmp_path / "out", lambda: steps.append(None))
    assert len(steps) == rows.batches(2) == 5
    got = pq.read_table(tmp_path / "out")
    assert got.column_names == ["name", "y", "z"]
    assert got["name"].combine_chunks().equals(names)
    check({name: numpy_column(name, got[name]) for name in "yz"}, given)


def test_free_rows_are_planned_once() -> None:
    chosen = Options(precision="fp32")
    infos = tflgpu.inspect(exponentials(free=True), chosen).model.inputs
    assert Prediction(b"", chosen, {}, None).planned_once(infos).options.shapes.batch == 32
    assert Prediction(b"", Options(shapes=Shapes(batch=8)), {}, None).planned_once(infos).options.shapes.batch == 8
    fixed = tflgpu.inspect(exponentials(), chosen).model.inputs
    assert Prediction(b"", chosen, {}, None).planned_once(fixed).options.shapes.batch is None


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 3), (0, 2, 3)])
def test_columns_come_back(shape: tuple[int, ...], dtype: str) -> None:
    rows = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    back = numpy_column("", pa.chunked_array([arrow_column(rows)]))
    assert back.dtype == rows.dtype
    np.testing.assert_array_equal(back, rows)


def test_tensors_whose_axes_lie_otherwise() -> None:
    """Channels first in memory, last by name."""
    stored = np.arange(12.0).reshape(2, 3, 2)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(stored.reshape(-1)), 6)
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float64(), (3, 2), permutation=[1, 0]), lists)
    got = numpy_column("", pa.chunked_array([tensors]))
    np.testing.assert_array_equal(got, stored.transpose(0, 2, 1))
    np.testing.assert_array_equal(got, tensors.to_numpy_ndarray())


@pytest.mark.parametrize(
    "column, reason",
    [
        (pa.array([1.0, None]), "1 of its values are null"),
        (pa.array([[1.0, 2.0], [3.0]]), "its rows have from 1 to 2 values"),
        (pa.array(["a"]), "numbers, or lists of numbers, were expected"),
    ],
)
def test_columns_that_are_no_inputs(column: pa.Array, reason: str) -> None:
    with pytest.raises(ValueError, match=f"column 'x' of type .* is no input: {reason}"):
        numpy_column("x", pa.chunked_array([column]))


@pytest.mark.device
def test_wrong_inputs_are_named(tmp_path: Path) -> None:
    model, out = DIGITS / "digits.tflite", ("--out", tmp_path / "out")
    np.save(tmp_path / "a.npy", np.zeros((3, 9, 8, 1), np.float32))
    assert fail("predict", model, tmp_path / "a.npy", *out) == (
        f"{tmp_path}/a.npy: its shape is [3, 9, 8, 1]; rows of [8, 8, 1] were expected"
    )
    np.save(tmp_path / "e.npy", np.full((1, 8, 8, 1), "x"))
    assert f"{tmp_path}/e.npy: its element type is <U1; float32 was expected" in fail(
        "predict", model, tmp_path / "e.npy", *out
    )
    (tmp_path / "b.npy").write_bytes(b"")
    assert f"{tmp_path}/b.npy: EOF" in fail("predict", model, tmp_path / "b.npy", *out)
    (tmp_path / "c.txt").touch()
    assert f"{tmp_path}/c.txt ends in none of .npy, .parquet, " in fail("predict", model, tmp_path / "c.txt", *out)
    assert "None.npy: No such file" in fail("predict", model, tmp_path / "None.npy", *out)
    (tmp_path / "d.png").touch()
    mixed = fail("predict", model, tmp_path / "a.npy", tmp_path / "d.png", *out)
    assert "the inputs end in .npy and an image's suffix; give those of one kind" in mixed
    assert "d.png" in fail("predict", model, tmp_path / "d.png", *out)
    two = tmp_path / "two.tflite"
    two.write_bytes(exponentials())
    assert "has the inputs 'x', 'w'; give Parquet" in fail("predict", two, tmp_path / "a.npy", *out)
    assert fail("predict", model, tmp_path / "a.npy", *out, "--column", "x") == (
        "--column is 'x'; INPUT=NAME was expected"
    )
    assert not list(tmp_path.glob("out*"))


@pytest.mark.device
def test_the_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    model, good, bad, out = DIGITS / "digits.tflite", tmp_path / "0.png", tmp_path / "1.png", tmp_path / "out"
    Image.new("L", (8, 8)).save(good)
    bad.write_bytes(good.read_bytes()[:20])
    assert "1.png" in fail("predict", model, good, bad, "--out", out, "--batch", 1)
    assert not list(tmp_path.glob("out*"))
    (tmp_path / "out.partial").mkdir()
    assert "was killed while it did" in fail("predict", model, good, "--out", out)
    (tmp_path / "out.partial").rmdir()
    succeed("predict", model, good, "--out", out)
    assert "it is there already" in fail("predict", model, good, "--out", out)
    np.save(tmp_path / "empty.npy", np.zeros((0, 8, 8, 1), np.float32))
    assert "have no rows" in fail("predict", model, tmp_path / "empty.npy", "--out", tmp_path / "none")


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 8, 8, 1), np.float32))
    arguments = ("predict", DIGITS / "digits.tflite", tmp_path / "a.npy", "--out", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "needs the package ray; install it with" in fail(*arguments, "--workers", 2)
    for name in [name for name in sys.modules if name.startswith("tflgpu.batch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 'needs the package pyarrow; install it with `pip install "pyarrow>=17"`' in fail(*arguments)
