"""tflgpu: with the executor that it chooses, with each that the device has, and with a new array for every run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import cycle

import numpy as np

import tflgpu
from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, timed
from tflgpu.runtime.executors.executor import Executor
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.transfer.pinning import ArrayPins

OWN = NAME = "tflgpu"
METRIC = "device"
LAUNCHES = "tflgpu-launch-executor"
NEW_ARRAYS = "tflgpu-new-arrays"
EXECUTORS = {OWN: "auto", LAUNCHES: "launch", "tflgpu-persistent-executor": "persistent"}


def covers(case: Case) -> bool:
    return True


def contenders(case: Case) -> list[Contender]:
    gpu = choose(case.device).type == "gpu"
    models = {n: _Model(case, executor) for n, executor in EXECUTORS.items() if gpu or executor != "persistent"}
    _ = case.expected
    for name, model in models.items():
        # tflgpu may measure to choose an executor. It must do so while nothing else runs, so not here.
        if name != OWN:
            with suppress(tflgpu.TflgpuError):  # the samples raise it again
                model.compiled.run(model.inputs)
    own = models[OWN]
    return [
        *(c for name, model in models.items() for c in _contenders(name, model)),
        Contender(NEW_ARRAYS, "host", timed(lambda: own.compiled.run(next(own.new_inputs)))),
    ]


def _contenders(name: str, model: _Model) -> Iterator[Contender]:
    yield Contender(name, "device", model.device_seconds, model.error, model.work)
    yield Contender(name, "launch", timed(lambda: model.executor.launch()), model.error)
    yield Contender(name, "host", timed(lambda: model.compiled.run(model.inputs)), model.error)


class _Model:
    def __init__(self, case: Case, executor: str) -> None:
        self._case = case
        batch = case.batch if case.batch != 1 else None
        self._options = tflgpu.Options(
            device=case.device, precision=case.precision, executor=executor, batch=batch, cache_dir=case.cache
        )

    @cached_property
    def inputs(self) -> list[np.ndarray]:
        return list(self._case.inputs.values())

    @cached_property
    def new_inputs(self) -> Iterator[list[np.ndarray]]:
        """More arrays in turn than tflgpu remembers: each one is new to it."""
        return cycle([[array.copy() for array in self.inputs] for _ in range(2 * ArrayPins.AT_MOST)])

    @cached_property
    def compiled(self) -> tflgpu.CompiledModel:
        return tflgpu.compile(self._case.data, self._options)

    @cached_property
    def executor(self) -> Executor:
        """The executor itself, to run kernels on inputs on the device: tflgpu's own interface always copies."""
        self.compiled.run(self.inputs)
        (instance,) = self.compiled._runner.instances.values()
        (executor,) = instance._engines
        return executor

    def device_seconds(self, runs: int) -> list[float]:
        return [self.compiled.profile(self.inputs, runs // 4).seconds]

    def work(self) -> list[tuple[int, int]]:
        return [(k.bytes, k.macs) for k in self.compiled.profile(self.inputs, 1).kernels]

    def error(self) -> float:
        return self._case.error(list(self.compiled.run(self.inputs).values()))
