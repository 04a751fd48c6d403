"""The command line as tests call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from typer.testing import CliRunner, Result

from tests.support.models import Builder
from tflgpu.cli import app
from tflgpu.cli.commands.demo import examples_folder
from tflgpu.evaluate.evaluations import DETECTOR

DIGITS = examples_folder() / "digits"
MODEL = DIGITS / "digits.tflite"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def succeed(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*arguments: object, exit_code: int = 0) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def fail(*arguments: object) -> str:
    """The message of a command that must fail as commands do for their users: one line, nothing on stdout."""
    result = invoke(*arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").rstrip("\n")


def unsupported_model(path: Path) -> Path:
    """Two operators that have no kernel for the device, before one that has."""
    builder = Builder()
    x = builder.input((1, 4), name="x")
    y = builder.without_kernel(builder.without_kernel(x), name="y")
    z = builder.add("RELU", [y], (1, 4), name="z")
    path.write_bytes(builder.finish([z]))
    return path


def detector_model(path: Path) -> Path:
    """TFLite_Detection_PostProcess of three boxes that lie apart and two classes, of which it returns two."""
    options = flexbuffers.Builder()
    with options.Map():
        for name, number in {"max_detections": 2, "max_classes_per_detection": 1, "num_classes": 2}.items():
            options.Int(name, number)
        for name in ("y_scale", "x_scale", "h_scale", "w_scale"):
            options.Float(name, 1)
        options.Float("nms_score_threshold", 0.1)
        options.Float("nms_iou_threshold", 0.5)
    builder = Builder()
    boxes, scores = builder.input((1, 3, 4), name="boxes"), builder.input((1, 3, 3), name="scores")
    anchors = builder.constant(np.array([[y, 0.5, 0.25, 0.5] for y in (0.25, 0.5, 0.75)], np.float32))
    outputs = [builder.tensor((), name=name) for name in ("places", "classes", "sureness", "count")]
    builder.op(DETECTOR, [boxes, scores, anchors], outputs, custom_options=bytes(options.Finish()))
    path.write_bytes(builder.finish(outputs))
    return path
