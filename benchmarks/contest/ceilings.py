"""The ceilings of a device and the cost of a launch: what times on it are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median

import pyopencl as cl

from benchmarks.contest.contender import timed
from tflgpu.measure.device_model import planned_target
from tflgpu.options import CacheFiles, Options
from tflgpu.page import report_page
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program, make_kernel
from tflgpu.runtime.opencl.session import Session, open_session

ROUNDS = 10
LAUNCHES = 200
GROUP = 256


@dataclass(frozen=True)
class Ceilings(report_page.Ceilings):
    """launch_seconds: of one launch among many, from pyopencl."""

    launch_seconds: float

    def attainable(self, work: Iterable[tuple[int, int]], precision: str) -> float:
        """The least seconds for kernels with this work, (bytes, multiply-adds) each, one after another.

        It is no bound if data stay in a cache, as for small models at batch 1.
        """
        rate = self.flops[precision]
        return sum(max(size / self.bytes_per_second, 2 * macs / rate) for size, macs in work)


def measure_ceilings(index: int) -> Ceilings:
    """The ceilings of the OpenCL device with this index."""
    session = open_session(choose(index))
    empty, _unused = empty_kernel(session)

    def launch() -> None:
        for _ in range(LAUNCHES):
            cl.enqueue_nd_range_kernel(session.queue, empty, (GROUP,), (GROUP,))
        session.queue.finish()

    launch_seconds = median(timed(launch)(ROUNDS)) / LAUNCHES
    return Ceilings(**asdict(report_page.measure_ceilings(session)), launch_seconds=launch_seconds)


def empty_kernel(session: Session) -> tuple[cl.Kernel, cl.Buffer]:
    """A kernel that does nothing, and the buffer that it has as argument but does not keep alive."""
    program = compile_program(session.context, "__kernel void nothing(__global float4 *unused) {}")
    kernel, buffer = make_kernel(program, "nothing"), cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 16)
    kernel.set_args(buffer)
    return kernel, buffer


def keep_costs(index: int, cache_dir: str) -> None:
    """Have tflgpu measure a GPU that it does not know while nothing else runs, and keep that in a cache."""
    device = choose(index)
    planned_target(device, Options(cache_files=CacheFiles(path=cache_dir)), partial(open_session, device))
