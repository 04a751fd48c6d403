"""Predictors of one machine share its devices; each actor of Ray has the GPU that Ray gave it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tflgpu.batch import predictor as module
from tflgpu.batch.predictor import own_device
from tflgpu.options import Options


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("TFLGPU_DEVICE", raising=False)


def there_are(monkeypatch: pytest.MonkeyPatch, *types: str) -> None:
    found = tuple(SimpleNamespace(index=index, type=kind) for index, kind in enumerate(types))
    monkeypatch.setattr(module, "devices", lambda: found)
    monkeypatch.setattr(module, "choose", lambda request: found[int(request)])


def test_each_device_goes_to_the_fewest(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, "gpu", "gpu")
    taken = [own_device(Options(), ["0", 1]) for _ in range(5)]
    assert [options.device for options, _ in taken] == [0, 1, 0, 1, 0]
    _, lock = taken[1]
    assert lock is not None
    lock.release()
    assert own_device(Options(), [0, 1])[0].device == 1


def test_a_killed_process_leaves_its_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there_are(monkeypatch, "gpu", "gpu")
    program = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from tflgpu.batch.predictor import node_lock
lock = node_lock("device-0-0")
lock.acquire()
print("taken", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "taken\n"
        options, _lock = own_device(Options(), [0, 1])
        assert options.device == 1
        process.kill()
        process.wait(timeout=20)
    assert own_device(Options(), [0, 1])[0].device == 0


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="devices is empty"):
        own_device(Options(), [])


@pytest.mark.parametrize(
    "ids, visible, expected",
    [
        (["1"], ("gpu", "cpu"), 0),  # Ray's variable hides the other one
        (["1"], ("gpu", "gpu", "cpu"), 1),  # the driver does not know the variable
        (["GPU-5f1a"], ("gpu", "cpu"), 0),
        (["0"], ("cpu",), "auto"),
        ([], ("gpu", "gpu"), "auto"),
    ],
)
def test_the_gpu_is_the_one_of_the_actor(
    ids: list[str], visible: tuple[str, ...], expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_are(monkeypatch, *visible)
    monkeypatch.setattr(module, "_gpus_of_the_actor", lambda: ids)
    assert own_device(Options(), None)[0].device == expected
    assert own_device(Options(device="cpu"), None)[0].device == "cpu"


def test_the_users_variable_comes_before_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, "gpu", "gpu")
    monkeypatch.setattr(module, "_gpus_of_the_actor", lambda: ["1"])
    monkeypatch.setenv("TFLGPU_DEVICE", "0")
    assert own_device(Options(), None)[0].device == "auto"


def test_no_gpu_is_assigned_outside_of_an_actor() -> None:
    assert module._gpus_of_the_actor() == []
