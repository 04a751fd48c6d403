"""Arrays of files and of chance, and the files of a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tflgpu.inputs import InputReader, input_files, random_input
from tflgpu.model.tensor_info import TensorInfo

INFOS = (TensorInfo("a", (2,), "float32", None), TensorInfo("b", (1, 3), "int32", None))


def test_arrays_come_in_order_or_by_name(tmp_path: Path) -> None:
    a, b = np.arange(2, dtype=np.float32), np.arange(3, dtype=np.int32)[None]
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    np.savez(tmp_path / "both.npz", b=b, a=a, other=a)
    np.savez_compressed(tmp_path / "one.npz", anything=a)
    reader = InputReader(b"", INFOS)
    for files in (["a.npy", "b.npy"], ["both.npz"]):
        got = reader.read([tmp_path / name for name in files])
        np.testing.assert_array_equal(got[0], a)
        np.testing.assert_array_equal(got[1], b)
    (alone,) = InputReader(b"", INFOS[:1]).read([tmp_path / "one.npz"])
    np.testing.assert_array_equal(alone, a)


def test_one_input_takes_a_file_for_each_of_its_batch(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", 2.0), ("wrong", 0.0)):
        np.save(tmp_path / f"{name}.npy", np.full((1, 2, 1) if name == "wrong" else (1, 3, 1), value, np.float32))
    reader = InputReader(b"", [TensorInfo("x", (2, 3, 1), "float32", None)])
    (both,) = reader.read([tmp_path / "a.npy", tmp_path / "b.npy"])
    np.testing.assert_array_equal(both, np.repeat(np.array([1, 2], np.float32), 3).reshape(2, 3, 1))
    with pytest.raises(ValueError, match=r"a\.npy, .*wrong\.npy: "):
        reader.read([tmp_path / "a.npy", tmp_path / "wrong.npy"])
    with pytest.raises(ValueError, match="3 inputs were given; the model has 1"):
        reader.read([tmp_path / "a.npy"] * 3)


def test_what_is_wrong_names_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", a=np.zeros(2))
    np.savez(tmp_path / "objects.npz", a=np.array([{}]), b=np.zeros(1))
    np.save(tmp_path / "plain.npy", np.zeros(2))
    (tmp_path / "plain.npy").rename(tmp_path / "plain.npz")
    (tmp_path / "text.npz").write_text("I am no archive")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "half.npz").read_bytes()[:100])
    reader = InputReader(b"", INFOS)
    with pytest.raises(ValueError, match=r"half\.npz has no array named 'b'; it has 'a'"):
        reader.read([tmp_path / "half.npz"])
    for name in ("objects", "plain", "text", "cut"):
        with pytest.raises(ValueError, match=rf"{name}\.npz is not a file of arrays"):
            reader.read([tmp_path / f"{name}.npz"])
    with pytest.raises(ValueError, match="1 inputs were given; the model has 2"):
        reader.read([tmp_path / "a.npy"])
    with pytest.raises(OSError, match="none"):
        reader.read([tmp_path / "none.npz"])


def test_folders_give_their_files_by_name(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpg", "c.npy", "labels.txt", "d.npz"):
        (tmp_path / name).touch()
    (tmp_path / "e.png").mkdir()
    assert [f.name for f in input_files(tmp_path)] == ["a.jpg", "b.PNG", "c.npy", "d.npz"]
    with pytest.raises(ValueError, match=r"has no file that ends in \.gif"):
        input_files(tmp_path, (".gif",))


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("float32", -1, 1), ("int8", -128, 127), ("int32", 0, 1), ("bool", 0, 1)]
)
def test_random_inputs_fill_their_range(dtype: str, low: float, high: float) -> None:
    drawn = random_input(TensorInfo("x", (50, 1000), dtype, None), np.random.default_rng(0)).astype(np.float64)
    assert low <= drawn.min() <= low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) <= drawn.max() <= high
    assert drawn.mean() == pytest.approx((low + high) / 2, abs=0.01 * (high - low))
