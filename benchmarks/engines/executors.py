"""tflgpu: with the executor that it chooses, and with each that the device has.

With the one that it chooses also by other calls: with a new array for every run, with arrays on the device, as streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import cycle

import numpy as np
import pyopencl.array as cl_array

import tflgpu
from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, Metric, streamed, timed
from tflgpu.options import ExecutorChoice
from tflgpu.runtime.executors.executor import Executor
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.pinned_memory import ArrayPins

OWN = NAME = "tflgpu"
METRIC: Metric = "device"
LAUNCHES = "tflgpu-launch-executor"
NEW_ARRAYS = "tflgpu-new-arrays"
ON_DEVICE, ENQUEUE, RUN_MANY = "tflgpu-run-on-device", "tflgpu-enqueue", "tflgpu-run-many"
EXECUTORS: dict[str, ExecutorChoice] = {OWN: "auto", LAUNCHES: "launch", "tflgpu-persistent-executor": "persistent"}


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
        Contender(RUN_MANY, "host", streamed(lambda: next(own.results), lambda: None)),
        Contender(ON_DEVICE, "launch", timed(lambda: own.compiled.run(own.sources, own.targets)), own.error_there),
        Contender(ENQUEUE, "device", streamed(own.enqueue, own.wait), own.error_there),
    ]


def _contenders(name: str, model: _Model) -> Iterator[Contender]:
    yield Contender(name, "device", model.device_seconds, model.error, model.work)
    yield Contender(name, "launch", timed(lambda: model.executor.launch()), model.error)
    yield Contender(name, "host", timed(lambda: model.compiled.run(model.inputs)), model.error)


class _Model:
    def __init__(self, case: Case, executor: ExecutorChoice) -> None:
        self._case = case
        batch = case.batch if case.batch != 1 else None
        self._options = tflgpu.Options(
            device=case.device,
            precision=case.precision,
            execution=tflgpu.Execution(executor=executor),
            shapes=tflgpu.Shapes(batch=batch),
            cache_files=tflgpu.CacheFiles(path=case.cache),
        )

    @cached_property
    def inputs(self) -> list[np.ndarray]:
        return list(self._case.inputs.values())

    @cached_property
    def new_inputs(self) -> Iterator[list[np.ndarray]]:
        """More arrays in turn than tflgpu remembers: each one is new to it."""
        return cycle([[array.copy() for array in self.inputs] for _ in range(2 * ArrayPins.AT_MOST)])

    @cached_property
    def results(self) -> Iterator[object]:
        """The results of endless runs, whose inputs come from the host."""
        return self.compiled.run_many(self.new_inputs)

    @cached_property
    def sources(self) -> list[cl_array.Array]:
        return [cl_array.to_device(self.compiled.queue, array) for array in self.inputs]

    @cached_property
    def targets(self) -> dict[str, cl_array.Array]:
        return {i.name: cl_array.empty(self.compiled.queue, i.shape, i.dtype) for i in self.compiled.outputs}

    def enqueue(self) -> None:
        self._last = self.compiled.enqueue(self.sources, self.targets)

    def wait(self) -> None:
        self._last.wait()

    @cached_property
    def compiled(self) -> tflgpu.CompiledModel:
        return tflgpu.compile(self._case.data, self._options)

    @cached_property
    def executor(self) -> Executor:
        """The executor itself, to run kernels alone: tflgpu's own interface also looks at its arguments."""
        self.compiled.run(self.inputs)
        (instance,) = self.compiled._runner.instances.values()
        (executor,) = instance._engines
        assert isinstance(executor, Executor)
        return executor

    def device_seconds(self, runs: int) -> list[float]:
        return [self.compiled.profile(self.inputs, runs // 4).seconds]

    def work(self) -> list[tuple[int, int]]:
        return [(k.bytes, k.macs) for k in self.compiled.profile(self.inputs, 1).kernels]

    def error(self) -> float:
        return self._case.error(list(self.compiled.run(self.inputs).values()))

    def error_there(self) -> float:
        """The error of the results that the last run or stream has left on the device."""
        return self._case.error([array.get() for array in self.targets.values()])
