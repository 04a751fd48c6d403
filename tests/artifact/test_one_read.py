"""A model is read once: what happens to its file or buffer later changes no answer and no entry of the cache."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.support.models import Builder
from tflgpu.artifact import serializer
from tflgpu.model.model_source import ModelContent
from tflgpu.options import CacheFiles, CacheMode, Options

X = np.ones((1, 2, 2, 4), np.float32)
BATCH = np.ones((3, 2, 2, 4), np.float32)

pytestmark = pytest.mark.usefixtures("fresh_warnings")


def scaled(factor: float, batch: int = -1) -> bytes:
    """y = factor * x, for any batch."""
    builder = Builder()
    x = builder.input((1, 2, 2, 4), shape_signature=(batch, 2, 2, 4), name="x")
    y = builder.add("MUL", [x, builder.constant(np.full(4, factor, np.float32))], (1, 2, 2, 4), name="y")
    return builder.finish([y])


def options(folder: Path, cache: CacheMode = "readwrite", token: int | None = None) -> Options:
    return Options(precision="fp32", cache=cache, cache_files=CacheFiles(path=folder / "cache", model_token=token))


def overwrite(path: Path) -> None:
    path.write_bytes(scaled(5.0))


def replace(path: Path) -> None:
    overwrite(path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def go_elsewhere(path: Path) -> None:
    (path.parent / "elsewhere").mkdir(exist_ok=True)
    os.chdir(path.parent / "elsewhere")


def when_hashed(monkeypatch: pytest.MonkeyPatch, event: Callable[[], object]) -> None:
    """Let this happen each time that a file has been hashed, before its entry is looked up."""
    load = serializer.load

    def late(*arguments: Any) -> Any:
        event()
        return load(*arguments)

    monkeypatch.setattr(serializer, "load", late)


@pytest.mark.usefixtures("settled_files")
@pytest.mark.parametrize("token", [None, 7])
@pytest.mark.parametrize("event", [overwrite, replace, Path.unlink, go_elsewhere])
def test_a_new_batch_size_is_planned_for_the_model_that_was_compiled(
    event: Any, token: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # cold, then warm
        Path("model.tflite").write_bytes(scaled(2.0))
        model = tflgpu.compile("model.tflite", options(tmp_path, token=token))
        event(tmp_path / "model.tflite")
        np.testing.assert_array_equal(model.run(BATCH)["y"], 2 * BATCH)
        os.chdir(tmp_path)


def test_a_buffer_that_the_caller_changes_is_a_buffer_of_the_callers(tmp_path: Path) -> None:
    data = bytearray(scaled(2.0))
    models = [tflgpu.compile(buffer, options(tmp_path)) for buffer in (data, memoryview(data))]
    data[:] = bytes(len(data))
    for model in models:
        np.testing.assert_array_equal(model.run(BATCH)["y"], 2 * BATCH)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).run(X)["y"], 2 * X)


@pytest.mark.usefixtures("settled_files")
@pytest.mark.parametrize("token", [None, 7])
def test_a_file_that_is_replaced_while_it_compiles_leaves_no_wrong_entry(
    token: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced at the worst moment: when it has been hashed, before it is compiled."""
    path, chosen = tmp_path / "model.tflite", options(tmp_path, token=token)
    path.write_bytes(scaled(2.0, batch=1))
    shutil.copy2(path, tmp_path / "original")

    with monkeypatch.context() as patch:
        when_hashed(patch, lambda: path.write_bytes(scaled(5.0, batch=1)))
        np.testing.assert_array_equal(tflgpu.compile(path, chosen).run(X)["y"], 2 * X)
    np.testing.assert_array_equal(tflgpu.compile(path, chosen).run(X)["y"], 5 * X)
    (tmp_path / "original").replace(path)
    np.testing.assert_array_equal(tflgpu.compile(path, chosen).run(X)["y"], 2 * X)


@pytest.mark.usefixtures("settled_files")
def test_a_file_that_is_replaced_before_a_miss_is_known_is_compiled_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token finds the content hash of the old file, for which the cache has no entry; then the file is read."""
    path, chosen = tmp_path / "model.tflite", options(tmp_path, token=7)
    path.write_bytes(scaled(2.0, batch=1))
    tflgpu.compile(path, chosen)
    shutil.rmtree(tmp_path / "cache" / "v1" / "models")
    with monkeypatch.context() as patch:
        when_hashed(patch, lambda: overwrite(path))
        np.testing.assert_array_equal(tflgpu.compile(path, chosen).run(X)["y"], 5 * X)
    path.write_bytes(scaled(2.0, batch=1))
    np.testing.assert_array_equal(tflgpu.compile(path, chosen).run(X)["y"], 2 * X)


def test_a_file_that_is_read_again_is_the_same(tmp_path: Path) -> None:
    """Its bytes are released early; a few starts need them once more."""
    path = tmp_path / "model.tflite"
    path.write_bytes(scaled(2.0))
    content = ModelContent(path)
    first = content.bytes
    content.release()
    assert content.bytes == first
    content.release()
    replace(path)
    with pytest.raises(tflgpu.ModelError, match="has changed since it was read first"):
        _ = content.bytes


def test_a_pickle_is_of_the_model_that_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.tflite"
    path.write_bytes(scaled(2.0))
    pickles = [pickle.dumps(tflgpu.compile("model.tflite", options(tmp_path, cache=c))) for c in ("off", "readwrite")]
    go_elsewhere(path)
    for data in pickles:
        np.testing.assert_array_equal(pickle.loads(data).run(X)["y"], 2 * X)
    overwrite(path)
    for data in pickles:
        with pytest.raises(tflgpu.ModelError, match=r"model\.tflite has changed since"):
            pickle.loads(data)


def test_an_interpreter_runs_the_model_that_it_describes(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(scaled(2.0))
    interpreter = tflgpu.Interpreter(path, options=options(tmp_path))
    overwrite(path)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, X)
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), 2 * X)


def test_trees_with_equal_times_have_versions_of_their_own(tmp_path: Path) -> None:
    trees = [tmp_path / "one", tmp_path / "two"]
    for tree in trees:
        (tree / "inner").mkdir(parents=True)
        (tree / "inner" / "a.py").write_text("1")
        (tree / "b.j2").write_text("2")
        os.utime(tree / "inner" / "a.py", (0, 0))
    assert len({serializer.source_hash([tree, tmp_path / "none"]) for tree in trees}) == 1
    (trees[1] / "inner" / "a.py").write_text("3")
    os.utime(trees[1] / "inner" / "a.py", (0, 0))
    assert len({serializer.source_hash([tree]) for tree in trees}) == 2
    assert serializer.source_hash(serializer.SOURCES) in serializer._version()
