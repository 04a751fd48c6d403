"""The marker ``unoptimized``: its tests' programs are not optimized, in a cache of their own, and no others are."""

from __future__ import annotations

import os

import pytest

from tests.support.unoptimized import MODULES
from tflgpu.runtime.opencl.devices import choose


def options(device_name: str) -> list[bool]:
    device = choose(device_name).handle
    return ["-cl-opt-disable" in vars(module)["build_options"](device, "") for module in MODULES]


@pytest.mark.unoptimized
def test_marked_programs_are_not_optimized(device_name: str) -> None:
    assert all(options(device_name))
    assert os.environ["TFLGPU_CACHE_DIR"] == os.environ["TFLGPU_TESTS_UNOPTIMIZED"]


def test_others_are(device_name: str) -> None:
    assert not any(options(device_name))
    assert os.environ["TFLGPU_CACHE_DIR"] != os.environ["TFLGPU_TESTS_UNOPTIMIZED"]
