"""Plan -> the program for its executor, and how it is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tflgpu.artifact.executable import Executable
from tflgpu.codegen.link import link
from tflgpu.codegen.persistent_kernel import render_persistent
from tflgpu.codegen.render import render
from tflgpu.plan import Plan


def assemble(plan: Plan, output_types: Sequence[str] | None = None) -> tuple[str, Executable]:
    """The program of a plan for its executor, and how it is launched. output_types: as :func:`link` takes them."""
    source = render(plan)
    executable = link(plan, source.names, output_types)
    if plan.target.executor == "launch" or not executable.launches:
        return source.text, executable
    text, persistent = render_persistent(source, executable, ptx=plan.target.ptx)
    return text, replace(executable, persistent=persistent)
