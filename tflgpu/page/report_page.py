"""A compiled model and its inputs -> the page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median
from typing import Any

from numpy.typing import NDArray

from tflgpu.api import CompiledModel
from tflgpu.measure.ceilings import measure_ceilings
from tflgpu.measure.device_model import planned_target
from tflgpu.model.text import printable
from tflgpu.page.contents import Ceiling, Contents, Setting
from tflgpu.page.page_html import render_page
from tflgpu.page.sections import gather_sections
from tflgpu.report.profile import Profile
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target import Target
from tflgpu.version import __version__


def make_page(
    name: str, data: bytes, compiled: CompiledModel, inputs: Sequence[NDArray[Any]], profile: Profile, runs: int
) -> str:
    """Return the HTML of a profile. The errors are those of :meth:`CompiledModel.run`.

    Args:
        name: The name of the model's file.
        data: The bytes of the file.
        compiled: Made of these bytes.
        inputs: The arrays with which it was profiled.
        profile: The times.
        runs: The number of runs of which times are the medians.
    """
    device, target = compiled.device, target_of(compiled)
    sections = gather_sections(data, compiled.options, target, compiled.report, profile)
    ceilings = measure_ceilings(open_session(device))
    on_matrix_units = device.matrix_units and target.precision == "fp16"
    kernels = [kernel for section in sections for piece in section.pieces for kernel in piece.kernels]
    contents = Contents(
        Setting(
            printable(name),
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
        Ceiling("copy", ceilings.bytes_per_second / 1e9),
        # A kernel may be faster than what was measured: compilers do not always see how to multiply at the full rate.
        max(
            Ceiling("tensor cores" if on_matrix_units else "multiply-add", ceilings.flops[target.precision] / 1e9),
            Ceiling("best kernel", max((k.gflops or 0.0 for k in kernels), default=0.0)),
            key=lambda ceiling: ceiling.rate,
        ),
    )
    return render_page(contents)


def target_of(compiled: CompiledModel) -> Target:
    """Return the target for which a model was planned: with the executor that was chosen.

    Args:
        compiled: An opened model.
    """
    return replace(planned_target(compiled.device, compiled.options), executor=compiled.executor)


def _seconds(compiled: CompiledModel, inputs: Sequence[NDArray[Any]]) -> float:
    start = time.perf_counter()
    compiled.run(inputs)
    return time.perf_counter() - start
