"""A launch executor that computes in float and rounds to half what another plan would store in half."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Executable
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.program import Program, compile_program, make_kernel
from tflgpu.runtime.opencl.session import Session
from tflgpu.target import HALF_MAX

# The same as to store in half and to load again: templates/access/storage.cl.j2.
KERNEL = """
__kernel void round_to_half(__global float *values, ulong first) {
  const ulong i = first + get_global_id(0);
  const float x = values[i];
  ushort bits;
  vstore_half_rte(isfinite(x) ? clamp(x, -65504.0f, 65504.0f) : x, 0, (__private half *)&bits);
  values[i] = vload_half(0, (__private half *)&bits);
}
"""


@dataclass(frozen=True)
class Halves:
    """Places of a launch that half precision may store.

    floats: elements of its result; 0 if the result stays as it is. constants: arguments by number, each with its bytes
    in float.
    """

    floats: int
    constants: tuple[tuple[int, int], ...]


class RoundingExecutor(LaunchExecutor):
    """Runs launches in float, and rounds to half the results and constants of those that :meth:`round` names."""

    def __init__(self, executable: Executable, program: Program, session: Session, halves: Sequence[Halves]) -> None:
        """Allocate memory, with a rounded copy of the constants.

        Args:
            executable: The launches, planned in float.
            program: The kernels.
            session: The device.
            halves: For each launch, what it can have in half.
        """
        super().__init__(executable, program, session)
        self._halves = halves
        self._results: frozenset[int] = frozenset()
        self._constants: frozenset[int] = frozenset()
        self._rounded_buffers = self._round_constants(executable)
        self._kernel = make_kernel(compile_program(session.context, KERNEL), "round_to_half")

    def round(self, results: Collection[int], constants: Collection[int]) -> None:
        """Choose what is rounded to half in the next runs.

        Args:
            results: Numbers of launches whose results are rounded.
            constants: Numbers of launches that read rounded constants.
        """
        for number in self._constants.symmetric_difference(constants):
            buffers = self._rounded_buffers if number in constants else self._buffers
            kernel, launch = self._launches[number][0], self.executable.launches[number]
            for argument, _ in self._halves[number].constants:
                kernel.set_arg(2 * argument, buffers[launch.arguments[argument].buffer])
        self._results, self._constants = frozenset(results), frozenset(constants)

    def _start(self, ready: Sequence[cl.Event] = ()) -> cl.Event | None:
        queue, last, before = self.session.queue, None, ready or None
        for number, launch in enumerate(self._launches):
            last = cl.enqueue_nd_range_kernel(queue, *launch, wait_for=before)
            before = None
            if number in self._results and self._halves[number].floats:
                buffer, offset = self.executable.launches[number].arguments[0].place
                self._kernel.set_args(self._buffers[buffer], np.uint64(offset // 4))
                last = cl.enqueue_nd_range_kernel(queue, self._kernel, (self._halves[number].floats,), None)
        return last

    def _start_silently(self) -> None:
        self._start()

    def _round_constants(self, executable: Executable) -> list[cl.Buffer]:
        """All buffers; those with constants are replaced by rounded copies."""
        blocks = {n: b.data.copy() for n, b in enumerate(executable.buffers) if b.data is not None}
        for launch, halves in zip(executable.launches, self._halves, strict=True):
            for argument, size in halves.constants:
                buffer, offset = launch.arguments[argument].place
                values = blocks[buffer][offset : offset + size].view(np.float32)
                values[:] = np.clip(values, -HALF_MAX, HALF_MAX).astype(np.float16)
        flags, context = cl.mem_flags, self.session.context
        read = flags.READ_ONLY | flags.COPY_HOST_PTR
        return [
            cl.Buffer(context, read, hostbuf=blocks[n]) if n in blocks else buffer
            for n, buffer in enumerate(self._buffers)
        ]
