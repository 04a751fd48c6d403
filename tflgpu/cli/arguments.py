"""The arguments that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tflgpu.options import CacheMode, Precision, Tuning

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

TuningName = Annotated[
    Tuning, typer.Option("--tuning", help="Measure no, few or all candidates for the parameters of kernels.")
]

CacheDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--cache-dir",
        metavar="PATH",
        help="Directory or bundle of compiled models; several are searched in this order.",
        show_default="TFLGPU_CACHE_DIR, or the platform's cache directory",
    ),
]

CacheModeName = Annotated[
    CacheMode | None,
    typer.Option(
        "--cache", metavar="MODE", help="What to do with it: readwrite, read, require or off.", show_default="readwrite"
    ),
]
