"""ONNX Runtime's CPU provider on what tflite2onnx makes of the file, in fp32, from host arrays to host arrays.

A translated model takes images as NCHW: its arrays lie in that order before the clock runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, Metric, Skipped, timed

NAME = "onnx-runtime"
METRIC: Metric = "host"


def covers(case: Case) -> bool:
    return case.batch == 1  # the translation has the file's own batch


def contenders(case: Case) -> list[Contender]:
    try:
        import onnxruntime
    except ImportError as missing:
        raise Skipped(str(missing)) from missing
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(_translated(case.data), options, providers=["CPUExecutionProvider"])
    feeds = {
        node.name: array if list(array.shape) == node.shape else np.ascontiguousarray(np.moveaxis(array, -1, 1))
        for node, array in zip(session.get_inputs(), case.inputs.values(), strict=True)
    }

    def run() -> list[np.ndarray]:
        outputs: list[np.ndarray] = session.run(None, feeds)
        return outputs

    def error() -> float:
        expected = case.expected.values()
        pairs = zip(run(), expected, strict=True)
        return case.error([g if g.shape == e.shape else np.moveaxis(g, 1, -1) for g, e in pairs])

    return [Contender(NAME, METRIC, timed(run), error)]


def _translated(model: bytes) -> bytes:
    """Raises Skipped if tflite2onnx has no translation."""
    try:
        import tflite2onnx
    except ImportError as error:
        raise Skipped(str(error)) from error
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "model.tflite"), Path(folder, "model.onnx")
        source.write_bytes(model)
        try:
            tflite2onnx.convert(str(source), str(target))
        except Exception as error:  # it fails in many ways, assertions among them
            raise Skipped(f"tflite2onnx: {type(error).__name__}: {error}") from error
        return target.read_bytes()
