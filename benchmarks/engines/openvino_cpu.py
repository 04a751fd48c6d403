"""OpenVINO's CPU plugin on the .tflite file itself, in fp32, from host arrays to host arrays."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, Metric, Skipped, timed

NAME = "openvino"
METRIC: Metric = "host"


def covers(case: Case) -> bool:
    return True


def contenders(case: Case) -> list[Contender]:
    try:
        import openvino
    except ImportError as error:
        raise Skipped(str(error)) from error
    core = openvino.Core()
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.tflite")
        file.write_bytes(case.data)
        model = core.read_model(file)
    inputs = list(case.inputs.values())
    model.reshape({place: openvino.PartialShape(array.shape) for place, array in enumerate(inputs)})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0)),
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()

    def run() -> list[np.ndarray]:
        return list(request.infer(inputs).to_tuple())

    return [Contender(NAME, METRIC, timed(run), lambda: case.error(run()))]
