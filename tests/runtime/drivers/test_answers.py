"""Drivers are tried in a process of their own, whatever they do to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyopencl as cl
import pytest

from tflgpu.runtime.opencl.driver_files import Answer, answer_of


def test_a_driver_with_a_device(fake_driver: Callable[..., Path]) -> None:
    assert answer_of(str(fake_driver("libmali.so"))) == Answer(1)


def test_what_a_driver_prints_is_no_answer(fake_driver: Callable[..., Path]) -> None:
    assert answer_of(str(fake_driver("libmali.so", "PRINTS"))) == Answer(1)


@pytest.mark.parametrize(
    ("flag", "fault"),
    [
        ("CRASHES", "crashes when it is loaded (SIGABRT)"),
        ("NO_HARDWARE", "finds no device"),
        ("NO_DRIVER", "is no driver that an OpenCL loader can use"),
    ],
)
def test_drivers_that_fail(flag: str, fault: str, fake_driver: Callable[..., Path]) -> None:
    assert answer_of(str(fake_driver("libmali.so", flag))) == Answer(0, fault)


def test_a_driver_that_hangs(fake_driver: Callable[..., Path]) -> None:
    assert answer_of(str(fake_driver("libmali.so", "HANGS")), 0.5) == Answer(0, "did not answer within 0.5 s")


def test_what_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "libmali.so").write_bytes(b"text")
    assert answer_of(str(tmp_path / "libmali.so")).fault.startswith("cannot be loaded: ")


def test_the_loader_is_no_driver() -> None:
    """In a vendor's folder, libOpenCL.so may be either."""
    loader = next((Path(cl.__file__).parent / ".libs").glob("libOpenCL*"), None)
    if loader is None:
        pytest.skip("the loader is not in pyopencl's wheel")
    assert answer_of(str(loader)).fault == "is no driver that an OpenCL loader can use"


def test_a_library_is_asked_once(fake_driver: Callable[..., Path]) -> None:
    library = fake_driver("libmali.so")
    assert answer_of(str(library)).devices == 1
    library.unlink()
    assert answer_of(str(library)).devices == 1


def test_without_an_interpreter_nothing_is_risked(
    fake_driver: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert answer_of(str(fake_driver("libmali.so"))).fault == "cannot be tried first in a process of its own"
