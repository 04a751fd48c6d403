"""The questions that the tests ask of Ray Serve, with one start: ``python -m tests.batch.serve_session FOLDER`` prints
facts as JSON.

64 clients ask for rows, one after another each, while a replica is killed in the midst of a batch.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray import serve

from tests.batch.models import ROW, exponentials
from tflgpu.batch import serving
from tflgpu.batch.on_ray import cluster
from tflgpu.batch.serving import Replica, ask, deployment
from tflgpu.options import Options, Shapes

CLIENTS, EACH, BATCH, FATAL = 64, 10, 16, 500.0

FOLDER = Path(sys.argv[1])


class Mortal(Replica):
    """Is killed once, in the midst of its requests, and leaves a file that says how it started."""

    def __init__(self, *arguments: Any, folder: Path = FOLDER) -> None:
        super().__init__(*arguments)
        self._folder = folder
        (folder / f"{os.getpid()}.start").write_text(json.dumps(list(self._predictor.model.seconds)))

    async def __call__(self, rows: Any) -> Any:
        obituary = self._folder / "killed"
        if any(np.max(row.get("w", 0)) == FATAL for row in rows) and not obituary.exists():
            obituary.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().__call__(rows)


def row(number: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(number)
    x, w = random.normal(size=(2, *ROW)).astype(np.float32)
    if number == CLIENTS * EACH // 2:
        w[0] = FATAL
    return {"x": x, "w": w}


async def client(handle: Any, first: int) -> int:
    """The number of right answers."""
    right = 0
    for number in range(first, first + EACH):
        given = row(number)
        answer = await ask(handle, given)
        right += np.allclose(answer["y"], np.exp(given["x"]), rtol=1e-5)
        right += np.array_equal(answer["z"], given["x"] + given["w"])
    return right


async def all_clients(handle: Any) -> int:
    return sum(await asyncio.gather(*(client(handle, EACH * number) for number in range(CLIENTS))))


async def refusals(handle: Any) -> list[str]:
    wrong = [{"x": row(0)["x"]}, row(0) | {"w": np.zeros(3, np.float32)}]
    found = await asyncio.gather(*(ask(handle, each) for each in wrong), return_exceptions=True)
    return [f"{type(error).__name__}: {error}" for error in found]


def main() -> None:
    serving.Replica = Mortal  # type: ignore[misc]
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    options = Options(shapes=Shapes(batch=BATCH), precision="fp32")
    with cluster(None):
        begin = time.perf_counter()
        handle = serve.run(deployment(exponentials(), options, replicas=(2, 3)), route_prefix=None)
        started = time.perf_counter() - begin
        begin = time.perf_counter()
        right = asyncio.run(all_clients(handle))
        seconds = time.perf_counter() - begin
        refused = asyncio.run(refusals(handle))
        while len(starts := list(FOLDER.glob("*.start"))) < 3:  # one in place of the killed one
            time.sleep(0.05)
        serve.shutdown()
    facts = {
        "right": right,
        "asked": 2 * CLIENTS * EACH,
        "killed": (FOLDER / "killed").exists(),
        "starts": [json.loads(path.read_text()) for path in starts],
        "refused": refused,
        "seconds": [started, seconds],
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
