"""Mesa's rusticl and a current PoCL give right answers, each in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.drivers.check_device import WRONG_VERSION
from tests.drivers.debian import DRIVERS, FOLDER, DebianDriver

pytestmark = pytest.mark.full("drivers that are not everywhere; they compile for half a minute")


@pytest.mark.parametrize("driver", DRIVERS, ids=str)
def test_operators_and_models_are_right(driver: DebianDriver, shared: Path) -> None:
    folder = Path(os.environ.get(FOLDER, "/nowhere"))
    if not driver.is_in(folder):
        pytest.skip(f"{FOLDER} names no folder with {driver}; `python -m tests.drivers.debian FOLDER` makes one")
    if driver.run(folder, ["true"]).returncode:
        pytest.skip("this process may not mount a driver over the system's libraries")
    command = [sys.executable, "-m", "tests.drivers.check_device", driver.platform, ",".join(driver.tried)]
    found = driver.run(folder, command)
    if found.returncode == WRONG_VERSION:
        pytest.skip(found.stdout)
    assert found.returncode == 0, found.stdout + found.stderr[-2000:]
