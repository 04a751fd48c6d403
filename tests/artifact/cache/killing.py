"""Processes that start cold at once, some of them killed.

``python -m tests.artifact.cache.killing FOLDER ROUNDS SEED KILL``

Each of 8 processes does what compilations do: it loads an entry, makes and stores it if there is none, and loads it
again. A wrong answer, a warning or an exception makes it exit with 1. Each round is in a new cache, FOLDER/0 and so on,
because nobody writes to a warm one. With KILL 1 all processes get SIGKILL, one after the other at random moments, so
that no survivor repairs what a killed one left. Prints one JSON object: how many were killed, and how many failed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path

from tests.artifact.cache.entries import metadata_of, model_key, same, tensors_of
from tflgpu.artifact.cache import Cache

PROCESSES = 8
MEAN_SECONDS = 0.1  # from the start of a round until all are killed; the work of a round takes longer
MODELS = 3
SIZE = 500_000  # rows of 4 half floats: 4 MB, so that writing takes a while


def compile_all(cache: Cache, models: Iterable[int]) -> None:
    for number in models:
        key = model_key(number)
        found = cache.load(key)
        if found is None:
            cache.store(key, tensors_of(key, SIZE), metadata_of(key))
            found = cache.load(key)
        assert same(found, key, SIZE), key


def child(folder: Path, seed: int) -> int:
    """Fork a process that compiles; its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        warnings.simplefilter("error")
        compile_all(Cache([folder]), random.Random(seed).sample(range(MODELS), MODELS))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(folder: Path, rounds: int, seed: int, kill: bool) -> None:
    rng = random.Random(seed)
    count = {"killed": 0, "failed": 0}
    for number in range(rounds):
        pids = [child(folder / str(number), rng.randrange(1 << 30)) for _ in range(PROCESSES)]
        if kill:
            for pid in rng.sample(pids, PROCESSES):
                time.sleep(rng.random() * MEAN_SECONDS * 2 / PROCESSES)
                os.kill(pid, signal.SIGKILL)  # a process that has ended is still ours until it is waited for
        for pid in pids:
            _, status = os.waitpid(pid, 0)
            count["killed"] += os.WIFSIGNALED(status)
            count["failed"] += os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
    print(json.dumps(count))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1")
