"""A plugin of pytest that skips what is left once tests have taken ``TFLGPU_MUTATE_SECONDS`` of processor time."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip a test that nobody has time for."""
    times = os.times()
    taken = times.user + times.system + times.children_user + times.children_system
    if taken > float(os.environ["TFLGPU_MUTATE_SECONDS"]):
        pytest.skip("over budget")
