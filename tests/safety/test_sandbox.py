"""Tests of the processes between hostile jobs and the run that judges them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.safety.sandbox import Sandbox, run_all
from tflgpu.errors import ModelError


def _behave(job: str) -> str:
    match job:
        case "public":
            raise ModelError("damaged")
        case "foreign":
            raise KeyError("inner")
        case "exit":
            os._exit(3)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            time.sleep(3600)
        case "memory":
            np.ones(1 << 30)
    return f"did {job}"


def _sandbox() -> Sandbox[str]:
    return Sandbox(_behave, seconds=60.0)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox[str]]:
    with _sandbox() as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("job", "kind", "text", "details"),
    [
        ("public", "public error", "ModelError: damaged", "in _behave"),
        ("foreign", "foreign exception", "KeyError: 'inner'", "in _behave"),
        ("exit", "death", "the process died with exit code 3", ""),
        ("crash", "death", "the process died with SIGSEGV", "in _behave"),
        ("memory", "memory", "MemoryError: ", "np.ones(1 << 30)"),
    ],
)
def test_a_job_costs_itself_alone(job: str, kind: str, text: str, details: str, sandbox: Sandbox[str]) -> None:
    fate = sandbox.run(job)
    assert fate.kind == kind
    assert fate.text.startswith(text)
    assert details in fate.details
    assert sandbox.run("next").value == "did next"


def test_a_hang_ends_and_says_where(sandbox: Sandbox[str]) -> None:
    sandbox.run("first")  # the process has started
    sandbox.seconds = 1.0
    fate = sandbox.run("hang")
    sandbox.seconds = 60.0
    assert fate.kind == "hang"
    assert "in _behave" in fate.details
    assert sandbox.run("next").value == "did next"


def test_jobs_keep_their_order() -> None:
    fates = run_all(["a", "exit", "b"], _sandbox, processes=1)
    assert [fate.value for fate in fates] == ["did a", None, "did b"]
