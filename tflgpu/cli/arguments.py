"""The arguments that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tflgpu.options import Precision

if TYPE_CHECKING:
    from tflgpu.api import CompiledModel

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A .tflite file.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device", help="Index of `tflgpu devices`, or part of a device's or platform's name.", metavar="NAME"
    ),
]
PrecisionName = Annotated[
    Precision, typer.Option("--precision", help="Storage on the device; auto is fp16 on GPUs, fp32 elsewhere.")
]


def precision_of(model: CompiledModel) -> str:
    """What "auto" became."""
    return "fp16" if model.plan.target.storage == "half" else "fp32"
