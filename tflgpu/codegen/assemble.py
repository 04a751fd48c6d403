"""The last stage of code generation: launches one by one, or one kernel that goes through all of them."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.artifact.executable import Executable
from tflgpu.codegen.claiming_kernel import can_claim, render_claiming
from tflgpu.codegen.persistent_kernel import for_parts, render_persistent
from tflgpu.codegen.render import KernelSource
from tflgpu.errors import internal_faults
from tflgpu.plan.program_parts import find_parts
from tflgpu.target import Target


@internal_faults("rendering the program")
def assemble(source: KernelSource, executable: Executable, target: Target) -> tuple[str, Executable]:
    """Return the program of linked kernels for the target's executor, and how it is launched.

    Launches one by one are the way also where the target's is not worthwhile, or one buffer cannot have all memory.

    Args:
        source: The rendered functions.
        executable: The buffers and launches of these functions.
        target: The device; names the executor.
    """
    if target.executor == "launch" or not executable.launches:
        return _launches(source, executable)
    if target.executor == "claiming":
        if not can_claim(executable):
            return _launches(source, executable)
        text, claiming = render_claiming(source, executable)
        return text, replace(executable, claiming=claiming)
    text, persistent = render_persistent(source, executable, ptx=target.ptx)
    if executable.ranges[-1] + persistent.clock_bytes > target.limits.allocation_bytes:
        return _launches(source, executable)
    return text, replace(executable, persistent=persistent)


def _launches(source: KernelSource, executable: Executable) -> tuple[str, Executable]:
    """Return a program of a kernel for each function. Many of them are in parts of about as much text each."""
    parts = find_parts([len(function.source) for function in source.functions])
    number = len(set(parts))
    if number < 2:
        return source.text, executable
    texts = (for_parts([part], function.source) for part, function in zip(parts, source.functions, strict=True))
    return "\n".join((source.prelude, *texts)), replace(executable, launch_parts=number)
