"""LiteRT's CPU interpreter with XNNPACK, on one core and on all, from host arrays to host arrays."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, Metric, timed

NAME = "litert-cpu"
METRIC: Metric = "host"


def covers(case: Case) -> bool:
    return True


def contenders(case: Case) -> list[Contender]:
    cores = len(os.sched_getaffinity(0))
    return [_contender(case, NAME, cores), _contender(case, f"{NAME}-1-thread", 1)]


def _contender(case: Case, name: str, threads: int) -> Contender:
    interpreter = Interpreter(model_content=case.data, num_threads=threads)
    if case.batch != 1:
        for index, array in case.inputs.items():
            interpreter.resize_tensor_input(index, array.shape)
    interpreter.allocate_tensors()
    run = partial(_run, interpreter, case)
    return Contender(name, METRIC, timed(run), lambda: case.error(run()))


def _run(interpreter: Interpreter, case: Case) -> list[np.ndarray]:
    for index, array in case.inputs.items():
        interpreter.set_tensor(index, array)
    interpreter.invoke()
    return [interpreter.get_tensor(index) for index in case.expected]
