"""Whether models that run side by side, for long, always give the same bits, as rows of JSON.

    python -m benchmarks.stress MODEL... [--runs 100000] [--processes 3] [--busy] [--precision fp16] [--executor auto]
                                [--seconds 600] [--device D] [--out FILE]

A MODEL is a .tflite file or a name of benchmarks.zoo. Every process has all of them, each in a thread of its own. A
thread makes ``runs`` inferences on a few inputs in turn: by ``run`` with arrays on the host and on the device, by
``enqueue`` with several on their way, and by ``run_many``, for at most ``seconds`` once its process has compiled all
models. Every output is compared with the first one for its input, which LiteRT's interpreter judges elsewhere.
``--busy`` adds a process in which PyTorch multiplies large matrices on the same GPU.

A row tells how many inferences of a model in one process there were, how many differed, and which errors were raised.
The script fails if there are any of those.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from itertools import cycle, islice
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl.array as cl_array

import tflgpu
from benchmarks.publish import publish
from benchmarks.zoo import load
from tflgpu.inputs import random_input
from tflgpu.runtime.opencl.devices import choose

INPUTS = 4  # sets of random numbers for each model
ROUND = 32  # inferences by one kind of call, before the next kind has its turn

Outputs = dict[str, np.ndarray]


class Subject:
    """A model with inputs, and what they gave first."""

    def __init__(self, model: str, options: tflgpu.Options) -> None:
        self.compiled = tflgpu.compile(load(model), options)
        random = np.random.default_rng(0)
        self.inputs = [[random_input(i, random) for i in self.compiled.inputs] for _ in range(INPUTS)]
        self.expected = []
        for given in self.inputs:
            self.compiled.reset_state()
            self.expected.append({name: array.copy() for name, array in self.compiled.run(given).items()})
        queue = self.compiled.queue
        self.sources = [[cl_array.to_device(queue, array) for array in given] for given in self.inputs]
        self.targets = [
            {i.name: cl_array.zeros(queue, i.shape, i.dtype) for i in self.compiled.outputs} for _ in self.inputs
        ]

    def run(self, count: int) -> Iterator[tuple[int, Outputs]]:
        for number in islice(cycle(range(INPUTS)), count):
            yield number, self.compiled.run(self.inputs[number])

    def run_on_device(self, count: int) -> Iterator[tuple[int, Outputs]]:
        for number in islice(cycle(range(INPUTS)), count):
            self.compiled.run(self.sources[number], self.targets[number])
            yield number, {name: array.get() for name, array in self.targets[number].items()}

    def enqueue(self, count: int) -> Iterator[tuple[int, Outputs]]:
        waiting = deque[tuple[int, tflgpu.Submission]]()
        for number in islice(cycle(range(INPUTS)), count):
            given = self.inputs[number] if number % 2 else self.sources[number]
            waiting.append((number, self.compiled.enqueue(given)))
            if len(waiting) == INPUTS:
                first, submission = waiting.popleft()
                yield first, submission.wait()
        for number, submission in waiting:
            yield number, submission.wait()

    def run_many(self, count: int) -> Iterator[tuple[int, Outputs]]:
        numbers = list(islice(cycle(range(INPUTS)), count))
        yield from zip(numbers, self.compiled.run_many(self.inputs[number] for number in numbers), strict=True)


def strain(subject: Subject, runs: int, end: float) -> Counter[str]:
    """How many inferences there were, how many differed, and the errors."""
    found = Counter(runs=0, different=0)
    ways: list[Callable[[int], Iterator[tuple[int, Outputs]]]]
    ways = [subject.run, subject.run_on_device, subject.enqueue, subject.run_many]
    for way in cycle(ways):
        if found["runs"] >= runs or time.time() >= end:
            return found
        try:
            for number, outputs in way(min(ROUND, runs - found["runs"])):
                found["runs"] += 1
                same = (np.array_equal(outputs[name], wanted) for name, wanted in subject.expected[number].items())
                found["different"] += not all(same)
        except tflgpu.TflgpuError as error:
            found[f"{type(error).__name__} of {way.__name__}: {error}"] += 1
            if sum(found.values()) - found["runs"] > ROUND:
                return found
    raise AssertionError("unreachable")


def process(models: Sequence[str], options: tflgpu.Options, runs: int, seconds: float) -> list[Counter[str]]:
    """The models in a thread each."""
    warnings.simplefilter("ignore", tflgpu.FallbackWarning)
    subjects = [Subject(model, options) for model in models]
    end = time.time() + seconds
    with ThreadPoolExecutor(len(models)) as pool:
        return list(pool.map(lambda subject: strain(subject, runs, end), subjects))


def keep_busy(stop: Event) -> None:
    """Large products on the GPU until ``stop``, by PyTorch."""
    import torch

    matrix = torch.rand(8192, 8192, device="cuda", dtype=torch.float16)
    while not stop.is_set():
        for _ in range(16):
            matrix @ matrix
        torch.cuda.synchronize()


def rows(arguments: argparse.Namespace, options: tflgpu.Options) -> Iterator[dict[str, Any]]:
    shared = arguments.models, options, arguments.runs, arguments.seconds
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(process, *shared) for _ in range(arguments.processes)]):
            for model, found in zip(arguments.models, done.result(), strict=True):
                yield {"model": Path(model).stem, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--runs", type=int, default=100_000, help="of each model in each process")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    options = tflgpu.Options(
        device=device.index, precision=arguments.precision, execution=tflgpu.Execution(executor=arguments.executor)
    )
    spawn = multiprocessing.get_context("spawn")
    stop, faults = spawn.Event(), list[str]()
    busy = spawn.Process(target=keep_busy, args=(stop,))

    def watched() -> Iterator[dict[str, Any]]:
        for row in rows(arguments, options):
            if row["different"] or len(row) > 3:
                faults.append(str(row))
            yield row

    if arguments.busy:
        busy.start()
    try:
        publish(watched(), device, arguments.out, processes=arguments.processes, busy=arguments.busy)
    finally:
        stop.set()
        if arguments.busy:
            busy.join()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
