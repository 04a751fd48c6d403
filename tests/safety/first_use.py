"""First use from many threads at once, in fresh processes: ``python -m tests.safety.first_use PROCESSES THREADS``.

In each process all threads pass a barrier and then do what touches a device first: they compile a small model, or list
the devices. Every second process starts from the cache. Prints what went wrong, and exits with 1 if something did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.safety.models import scaled

THREADS = """
import json, os, sys, threading, traceback, warnings
import numpy, pyopencl  # which may change what they like when they are imported

def work(number):
    barrier.wait()
    import tflgpu
    if number % 4 == 3:
        return len(tflgpu.devices()) > 0
    import numpy as np
    model = tflgpu.compile(sys.argv[1], tflgpu.Options(precision="fp32", cache=sys.argv[3], **json.loads(sys.argv[4])))
    return model.run(np.ones((1, 2, 2, 4), np.float32))["y"].tolist() == [[[[2.0] * 4] * 2] * 2]

def attempt(number):
    try:
        right[number] = work(number)
    except BaseException:
        traceback.print_exc()

warnings.simplefilter("error")
filters, environment, count = list(warnings.filters), dict(os.environ), int(sys.argv[2])
right, barrier = [False] * count, threading.Barrier(count)
threads = [threading.Thread(target=attempt, args=(number,)) for number in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert all(right), right
assert warnings.filters == filters, f"warning filters have changed: {warnings.filters}"
assert dict(os.environ) == environment, "the environment has changed"
"""


def faults(folder: Path, processes: int, threads: int, **options: str) -> list[str]:
    """The faults in fresh processes that use ``threads`` threads each. options: for ``tflgpu.compile``."""
    model = folder / "model.tflite"
    model.write_bytes(scaled(2.0))
    found = []
    for number in range(processes):
        mode = ("off", "readwrite")[number % 2]
        command = [sys.executable, "-c", THREADS, str(model), str(threads), mode, json.dumps(options)]
        environment = {**os.environ, "TFLGPU_CACHE_DIR": str(folder / "cache")}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        except subprocess.TimeoutExpired:
            found.append(f"process {number}: no end after 300 s")
            continue
        if done.returncode or done.stderr:
            found.append(f"process {number}: exit code {done.returncode}\n{done.stderr}")
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        results = faults(Path(place), *map(int, sys.argv[1:3]))
    print(*results, f"{len(results)} of {sys.argv[1]} processes failed", sep="\n")
    sys.exit(bool(results))
