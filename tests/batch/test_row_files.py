"""Rows of files, predicted in this process: what comes out, bad rows, and runs that were interrupted."""

from __future__ import annotations

import csv
import io
import json
import resource
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from PIL import Image

import tflgpu
from tests.batch.models import check, columns, exponentials
from tests.cli.command import DIGITS, as_json, fail, invoke, succeed
from tflgpu.batch.formats import FORMATS, arrow_column, numpy_column
from tflgpu.batch.job import Job, Prediction
from tflgpu.batch.prediction import predict, run_job
from tflgpu.batch.row_files import open_rows
from tflgpu.options import Options, Shapes

TWO_ROWS = Options(shapes=Shapes(batch=2), precision="fp32")


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
    infos = tflgpu.inspect(exponentials(), TWO_ROWS).model.inputs
    rows = open_rows([tmp_path / "in.parquet"], b"", infos, columns={"x": "pixels"})
    assert rows.count == 7
    steps: list[None] = []
    job = Job(rows, Prediction(exponentials(), TWO_ROWS), "parquet")
    assert run_job(job, tmp_path / "out", lambda: steps.append(None)).errors == 0
    assert len(steps) == 5  # groups of 3, 3 and 1 rows, two at a time
    got = pq.read_table(tmp_path / "out")
    assert got.column_names == ["name", "y", "z", "error"]
    assert got["name"].combine_chunks().equals(names) and got["error"].null_count == 7
    check({name: numpy_column(name, got[name]) for name in "yz"}, given)


def test_free_rows_are_planned_once() -> None:
    chosen = Options(precision="fp32")
    infos = tflgpu.inspect(exponentials(free=True), chosen).model.inputs
    assert Prediction(b"", chosen).planned_once(infos).options.shapes.batch == 32
    assert Prediction(b"", Options(shapes=Shapes(batch=8))).planned_once(infos).options.shapes.batch == 8
    fixed = tflgpu.inspect(exponentials(), chosen).model.inputs
    assert Prediction(b"", chosen).planned_once(fixed).options.shapes.batch is None


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
        (pa.array([1.0, None]), "null stands for 1 of its values"),
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
    (tmp_path / "c.doc").touch()
    assert f"{tmp_path}/c.doc ends in none of .npy, .parquet, " in fail("predict", model, tmp_path / "c.doc", *out)
    assert "None.npy: No such file" in fail("predict", model, tmp_path / "None.npy", *out)
    (tmp_path / "d.png").touch()
    mixed = fail("predict", model, tmp_path / "a.npy", tmp_path / "d.png", *out)
    assert "the inputs end in .npy and an image's suffix; give those of one kind" in mixed
    two = tmp_path / "two.tflite"
    two.write_bytes(exponentials())
    assert "has the inputs 'x', 'w'; give a table" in fail("predict", two, tmp_path / "a.npy", *out)
    assert fail("predict", model, tmp_path / "a.npy", *out, "--column", "x") == (
        "--column is 'x'; INPUT=NAME was expected"
    )
    assert not list(tmp_path.glob("out*"))


def picture(folder: Path, name: str, number: int = 0, whole: bool = True) -> Path:
    """An image of one grey, or the first bytes of one."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8), number).save(path)
    if not whole:
        path.write_bytes(path.read_bytes()[:20])
    return path


@pytest.mark.device
def test_bad_pictures_lose_nothing_but_themselves(tmp_path: Path) -> None:
    folder, model = tmp_path / "in", DIGITS / "digits.tflite"
    for number in range(7):
        picture(folder, f"{'ab'[number % 2]}/{number}.png", 30 * number, whole=number % 3 != 1)
    result = as_json("predict", model, folder, "--out", tmp_path / "all", "--batch", 2)
    assert (result["rows"], result["errors"], result["resumed"]) == (7, 2, 0)
    table = pq.read_table(tmp_path / "all")
    assert [Path(path).stem for path in table["path"].to_pylist()] == [*"0246135"]
    assert table["label"].to_pylist() == ["a"] * 4 + ["b"] * 3
    bad = [text for text in table["error"].to_pylist() if text]
    assert len(bad) == 2 == table["probabilities"].null_count and bad == result["first_errors"]
    assert bad[0].startswith(f"{folder}/a/4.png: ") and bad[1].startswith(f"{folder}/b/1.png: ")
    succeed("predict", model, folder, "--out", tmp_path / "good", "--batch", 2, "--on-error", "skip")
    good = pq.read_table(tmp_path / "good")
    assert "error" not in good.column_names
    assert good["probabilities"].combine_chunks().equals(table["probabilities"].combine_chunks().drop_null())
    text = fail("predict", model, folder, "--out", tmp_path / "none", "--batch", 2, "--on-error", "stop")
    assert "/a/4.png: " in text and not list(tmp_path.glob("none*"))
    result = invoke("predict", model, folder / "b" / "1.png", "--out", tmp_path / "bad")
    assert result.exit_code == 1 and "error: no row has results; the first: " in result.stderr
    assert "it is there already" in fail("predict", model, folder, "--out", tmp_path / "good")


TABLE_ERRORS = {1: "it is null", 2: "its shape is [2]; [2, 3] was expected", 4: "'seven' is no number"}


def bad_table(kind: str, folder: Path) -> tuple[Path, dict[int, str]]:
    """Six rows of two inputs, some of them bad, and why."""
    given = columns(6)
    x, w = given["x"].tolist(), given["w"].tolist()
    x[1], x[2] = None, [1.0, 2.0]
    path, errors = folder / f"in.{kind}", dict(TABLE_ERRORS)
    if kind in ("csv", "jsonl"):
        w[4] = "seven"
    else:
        del errors[4]
    if kind == "csv":
        lines = ["name,x,w", *(f'{n},"{json.dumps(x[n])}","{json.dumps(w[n]).strip(chr(34))}"' for n in range(6))]
        path.write_text("\n".join([*lines, "6"]))
        errors |= {6: "it has 1 values; 3 were expected"}
    elif kind == "jsonl":
        lines = [json.dumps({"name": str(n), "x": x[n], "w": w[n]}) for n in range(6)]
        path.write_text("\n".join([*lines, "{"]))
        errors[6] = "it is no JSON"
    else:
        lists = pa.list_(pa.list_(pa.float32()))
        x[2] = [[1.0, 2.0]]
        errors[2] = "its shape is [1, 2]; [2, 3] was expected"
        table = pa.table({"name": [*"012345"], "x": pa.array(x, lists), "w": pa.array(w, lists)})
        with open(path, "wb") as file:
            FORMATS[kind](table, file)
    return path, errors


@pytest.mark.device
@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "jsonl"])
def test_bad_rows_of_tables_are_named(kind: str, tmp_path: Path) -> None:
    path, errors = bad_table(kind, tmp_path)
    summary = predict(exponentials(), path, tmp_path / "out", TWO_ROWS)
    assert summary.rows == 6 + (6 in errors) and summary.errors == len(errors)
    got = pq.read_table(tmp_path / "out")
    for row, text in enumerate(got["error"].to_pylist()):
        if row in errors:
            assert text.startswith(f"{path}: row {row}: ") and errors[row] in text
            assert got["y"][row].as_py() is None
        else:
            assert text is None and got["name"][row].as_py() == str(row)
            expected = np.exp(columns(6)["x"][row].astype(np.float64)).reshape(-1)
            np.testing.assert_allclose(got["y"][row].as_py(), expected, rtol=1e-5)


@pytest.mark.device
def test_results_in_every_format(tmp_path: Path) -> None:
    """Each format has what a table of numpy gives."""
    given = columns(5)
    np.savez(tmp_path / "in.npz", **given)
    for kind in FORMATS:
        predict(exponentials(), tmp_path / "in.npz", tmp_path / kind, TWO_ROWS, format=kind)
    expected = np.exp(given["x"].astype(np.float64))
    (lines,), (values,) = ((tmp_path / kind).glob("0*") for kind in ("jsonl", "csv"))
    found = {
        "parquet": numpy_column("", pq.read_table(tmp_path / "parquet")["y"]),
        "arrow": numpy_column("", pa.ipc.open_file(tmp_path / "arrow" / "000000.arrow").read_all()["y"]),
        "npz": np.load(tmp_path / "npz" / "000000.npz")["y"],
        "jsonl": [json.loads(line)["y"] for line in lines.read_text().splitlines()],
        "csv": [json.loads(row["y"]) for row in csv.DictReader(values.read_text().splitlines())],
    }
    with tarfile.open(tmp_path / "tar" / "000000.tar") as archive:
        arrays = [name for name in archive.getnames() if name.endswith(".y.npy")]
        found["tar"] = [np.load(io.BytesIO(archive.extractfile(name).read())) for name in arrays]  # type: ignore[union-attr]
    assert found.keys() == FORMATS.keys()
    for kind, rows in found.items():
        np.testing.assert_allclose(rows, expected, rtol=1e-5, err_msg=kind)


@pytest.mark.device
def test_archives_patterns_and_lists_name_the_same_pictures(tmp_path: Path) -> None:
    model = DIGITS / "digits.tflite"
    paths = [picture(tmp_path, f"in/{n}.png", 60 * n) for n in range(4)]
    (tmp_path / "in" / "2.cls").write_text("7")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive, tarfile.open(tmp_path / "all.tar", "w") as tar:
        for path in sorted((tmp_path / "in").iterdir()):
            archive.write(path, path.name)
            tar.add(path, path.name)
    (tmp_path / "list.txt").write_text("\n".join(f"in/{path.name}" for path in paths))
    found = {}
    for name in ("in", "in/*.png", "list.txt", "all.zip", "all.tar"):
        out = tmp_path / "out" / name.replace("/", "_")
        out.parent.mkdir(exist_ok=True)
        predict(model, tmp_path / name, out, Options(shapes=Shapes(batch=2)))
        found[name] = pq.read_table(out)
    for name, table in found.items():
        assert table["probabilities"].equals(found["in"]["probabilities"]), name
    assert found["all.tar"]["member"].to_pylist() == found["all.zip"]["member"].to_pylist()
    assert found["all.tar"]["cls"].to_pylist() == [None, None, "7", None]


JOB = """
import sys
from tflgpu import Options, Shapes
from tflgpu.batch import predict
predict(sys.argv[1], sys.argv[2], sys.argv[3], Options(shapes=Shapes(batch=4), precision="fp32"))
"""


@pytest.mark.device
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, digits: tuple[np.ndarray, np.ndarray]) -> None:
    """By SIGKILL, twice; a full disk in between; and another command."""
    model, given, out = DIGITS / "digits.tflite", tmp_path / "in.npy", tmp_path / "out"
    images = np.concatenate([digits[0]] * 8)[: 11 * 256 - 100]
    np.save(given, images)
    marks = tmp_path / "out.partial" / "_job"
    for parts in (2, 5):
        with subprocess.Popen([sys.executable, "-c", JOB, str(model), str(given), str(out)]) as process:
            while process.poll() is None and len([*marks.glob("[0-9]*.json")]) < parts:
                time.sleep(0.01)
            process.kill()
    options = Options(shapes=Shapes(batch=4), precision="fp32")
    with FileLock(marks / "lock"), pytest.raises(FileExistsError, match="another run writes to it"):
        predict(model, given, out, options)
    with pytest.raises(ValueError, match="an earlier run with other mean; repeat its command"):
        predict(model, given, out, options, mean=1.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            predict(model, given, out, replace(options, cache="off"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    summary = predict(model, given, out, options)
    assert summary.rows == len(images) and summary.resumed >= 5 * 256 and summary.errors == 0
    assert sorted(p.name for p in out.iterdir()) == [*(f"{n:06}.parquet" for n in range(11)), "_summary.json"]
    assert pq.read_table(out)["row"].to_pylist() == [*range(len(images))]
    found = classes(out)
    assert (found[: len(digits[1])] == digits[1]).mean() > 0.98
    np.testing.assert_array_equal(found[len(digits[1]) :], found[: -len(digits[1])])


@pytest.mark.device
def test_no_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.zeros((0, 8, 8, 1), np.float32))
    text = fail("predict", DIGITS / "digits.tflite", tmp_path / "empty.npy", "--out", tmp_path / "none")
    assert "have no rows" in text


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 8, 8, 1), np.float32))
    arguments = ("predict", DIGITS / "digits.tflite", tmp_path / "a.npy", "--out", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "needs the package ray; install it with" in fail(*arguments, "--workers", 2)
    for name in [name for name in sys.modules if name.startswith("tflgpu.batch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 'needs the package pyarrow; install it with `pip install "pyarrow>=17"`' in fail(*arguments)
