"""Ray Data's workers: the same rows as in one process, although one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batch.models import ROWS

# Bytes. Ray would take a third of the memory.
STORE = 100 << 20


@pytest.mark.full("it starts Ray, which takes ten seconds")
def test_workers_give_what_one_process_gives(tmp_path: Path) -> None:
    environment = os.environ | {"RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(STORE)}
    command = [sys.executable, "-m", "tests.batch.ray_session", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            out, messages = process.communicate(timeout=240)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, messages
    facts = json.loads(out)
    assert facts["killed"]
    assert facts["rows"] == ROWS and facts["ids"], "rows were lost, or came twice, or in another order"
    assert facts["equal"], "columns differ from those of one process"
    assert len(facts["starts"]) == 3, "two workers, and one in place of the killed one"
    assert not any("plan" in start for start in facts["starts"]), "a worker compiled what the cache has"
    assert facts["public"]
    assert facts["evaluated"], "an evaluation's rows differ from those of one process"
    assert facts["failure"] == "there is no column 'nothing' for input 'x'; there are ['w']"
