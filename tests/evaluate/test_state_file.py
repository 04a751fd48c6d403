"""An evaluation that was interrupted goes on where it was, and gives the numbers of one that was not."""

from __future__ import annotations

import errno
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.cli.command import as_json, fail, invoke, succeed
from tflgpu.evaluate.evaluations import Difference
from tflgpu.evaluate.task import Row, StateFile, Worker


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that ran, since this was cleared."""
    names: list[str] = []
    call = Worker.__call__

    def noted(self: Worker, file: Path) -> Row:
        names.append(file.name)
        return call(self, file)

    monkeypatch.setattr(Worker, "__call__", noted)
    return names


def fail_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt would end this process; `tests/acceptance/test_evaluations.py` has one."""
    call = Worker.__call__

    def failing(self: Worker, file: Path) -> Row:
        if file.name == name:
            raise OSError(errno.EIO, "Input/output error", str(file))
        return call(self, file)

    monkeypatch.setattr(Worker, "__call__", failing)


def test_by_default_the_state_is_in_the_cache(
    doubling: Path, vectors: Path, computed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFLGPU_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "evaluations"
    with monkeypatch.context() as patch:
        fail_at("3.npy", patch)
        assert invoke("evaluate", "diff", doubling, vectors).exit_code != 0
    (state,) = folder.iterdir()
    assert len(state.read_text().splitlines()) == 1 + 3
    computed.clear()
    succeed("evaluate", "diff", doubling, vectors, "--mean", 0)  # another evaluation, which has a state of its own
    assert len(computed) == 5
    computed.clear()
    kept = state.read_bytes()
    succeed("evaluate", "diff", doubling, vectors)
    assert computed == ["3.npy", "4.npy"]
    assert not list(folder.iterdir())
    state.write_bytes(b"damaged" + kept)
    computed.clear()
    succeed("evaluate", "diff", doubling, vectors)
    assert len(computed) == 5
    assert not list(folder.iterdir())


def test_a_changed_file_is_evaluated_again(
    doubling: Path, vectors: Path, computed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("evaluate", "diff", doubling, vectors, "--state", tmp_path / "state")
    with monkeypatch.context() as patch:
        fail_at("3.npy", patch)
        invoke(*arguments)
    np.save(vectors / "1.npy", np.full((1, 4), 9, np.float32))
    computed.clear()
    (output,) = as_json(*arguments)["outputs"]
    assert computed == ["1.npy", "3.npy", "4.npy"]
    assert output["range"] == 18


def test_a_state_of_another_run_is_refused(
    doubling: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    arguments = ("evaluate", "diff", doubling, vectors, "--state", state)
    with monkeypatch.context() as patch:
        fail_at("3.npy", patch)
        invoke(*arguments)
    kept = state.read_bytes()
    message = fail(*arguments, "--precision", "fp16")
    assert f"{state} belongs to another evaluation, which differs in precision ('fp32' there, 'fp16' here)" in message
    content = doubling.read_bytes()
    doubling.write_bytes(content + b"\0")
    assert "differs in model (" in fail(*arguments)
    doubling.write_bytes(content)
    for bad in (b"I am no state", b"{}\n", b"[1]\n", b"\xff\n"):
        state.write_bytes(bad)
        assert f"{state} is not the state of an evaluation" in fail(*arguments)
        assert state.read_bytes() == bad
    state.write_bytes(kept)
    succeed(*arguments)


@pytest.mark.parametrize("left", [b"", b'{"file": "c", "seco', b"\xff\xfe"])
def test_a_torn_line_is_dropped(left: bytes, tmp_path: Path) -> None:
    """A process that is killed while it writes leaves such a line."""
    identity: dict[str, Any] = {"task": "diff", "mean": None}
    state = StateFile(tmp_path / "state", identity)
    rows: list[Row] = [{"file": "a", "seconds": 0.1}, {"file": "b", "errors": [float("inf")]}]
    for row in rows:
        state.append(row)
    with open(state.path, "ab") as file:
        file.write(left)
    again = StateFile(state.path, identity)
    assert list(again.rows.values()) == rows
    again.append({"file": "c"})
    assert [json.loads(line).get("file") for line in state.path.read_bytes().splitlines()] == [None, "a", "b", "c"]
    again.remove()
    assert not list(tmp_path.iterdir())


def test_two_processes_may_evaluate_the_same(tmp_path: Path) -> None:
    first, second = (StateFile(tmp_path / "state", {"task": "diff"}) for _ in range(2))
    first.append({"file": "a"})
    second.append({"file": "b"})
    assert StateFile(tmp_path / "state", {"task": "diff"}).rows.keys() == {"a", "b"}
    first.remove()
    second.append({"file": "c"})
    second.remove()
    assert not list(tmp_path.iterdir())


def test_without_a_place_for_the_state_it_works(
    doubling: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_warnings: None
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TFLGPU_CACHE_DIR", str(tmp_path / "file"))
    result = invoke("evaluate", "diff", doubling, vectors)
    assert result.exit_code == 0
    assert "an interrupt will lose what is done: " in result.stderr
    assert f"{tmp_path}/file/state: " in fail("evaluate", "diff", doubling, vectors, "--state", tmp_path / "file/state")


def test_rows_are_plain_and_depend_on_their_file_alone(doubling: Path, vectors: Path) -> None:
    worker = Worker(Difference(model=doubling, options=tflgpu.Options()))
    files = sorted(vectors.iterdir())
    rows = [worker(file) for file in (*files, *files[::-1])]
    assert json.loads(json.dumps(rows)) == rows
    for first, second in zip(rows[:5], rows[5:][::-1], strict=True):
        assert (first["file"], first["errors"]) == (second["file"], second["errors"])
    assert json.loads(json.dumps(worker.engines.identity)) == worker.engines.identity
    for sent in (worker.task, worker.engines):
        assert pickle.loads(pickle.dumps(sent)) == sent
    worker.model.close()
