"""A compiled model and its inputs -> the page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from numpy.typing import NDArray

from tflgpu.api import CompiledModel
from tflgpu.model.text import printable
from tflgpu.page.contents import Ceiling, Contents, Setting
from tflgpu.page.page_html import render_page
from tflgpu.page.sections import gather_sections
from tflgpu.report.profile import Profile
from tflgpu.runtime.opencl.ceilings import measure_ceilings
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target import Target
from tflgpu.target.target import ExecutorName
from tflgpu.version import __version__


def make_page(model: Path, compiled: CompiledModel, inputs: Sequence[NDArray[Any]], profile: Profile, runs: int) -> str:
    """The HTML of a profile.

    model: the file of which ``compiled`` was made. inputs: with which it was profiled. runs: of which times are the
    medians. Raises what :meth:`CompiledModel.run` raises, and OSError if the file cannot be read.
    """
    data = model.read_bytes()
    sections = gather_sections(data, compiled.options, target_of(compiled), compiled.report, profile)
    device = compiled.device
    ceilings = measure_ceilings(open_session(device))
    kernels = [kernel for section in sections for piece in section.pieces for kernel in piece.kernels]
    contents = Contents(
        Setting(
            printable(model.name),
            len(data),
            device.name,
            device.platform,
            device.driver,
            compiled.precision,
            compiled.executor,
            __version__,
            runs,
            datetime.now().astimezone().isoformat(" ", "minutes"),
        ),
        compiled.report,
        sections,
        median(_seconds(compiled, inputs) for _ in range(runs)),
        _ceiling(ceilings.bytes_per_second / 1e9, []),
        _ceiling(ceilings.flops[compiled.precision] / 1e9, [k.gflops or 0.0 for k in kernels]),
    )
    return render_page(contents)


def target_of(compiled: CompiledModel) -> Target:
    """The target for which a model was planned: with the executor that was chosen."""
    executor: ExecutorName = "persistent" if compiled.executor == "persistent" else "launch"
    return replace(compiled.device.target(compiled.options), executor=executor)


def _seconds(compiled: CompiledModel, inputs: Sequence[NDArray[Any]]) -> float:
    start = time.perf_counter()
    compiled.run(inputs)
    return time.perf_counter() - start


def _ceiling(measured: float, reached: Sequence[float]) -> Ceiling:
    """What was measured, unless a kernel is faster: compilers do not always see how to multiply at the full rate."""
    best = max(reached, default=0.0)
    return Ceiling(max(measured, best), measured >= best)
