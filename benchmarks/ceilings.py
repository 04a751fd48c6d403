"""The ceilings of a roofline model: what a device can do at most, measured in OpenCL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np
import pyopencl as cl

from benchmarks.contender import timed
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program
from tflgpu.runtime.opencl.session import open_session, profiling_queue

ROUNDS = 10
LAUNCHES = 200
GROUP = 256
CHAINS = 8  # independent sums in each work-item or warp, to hide their latency
ITERATIONS = 2048  # of each sum
MMA_FLOPS = 2 * 16 * 8 * 16

KERNELS = """
__kernel void nothing(__global float4 *unused) {}

__kernel void copy(__global const float4 *src, __global float4 *dst) { dst[get_global_id(0)] = src[get_global_id(0)]; }

__kernel void multiply_add(__global float *dst) {
  const float x = 0.999f + 1e-6f * (float)get_local_id(0);
  float sum[%(chains)d];
  for (int i = 0; i < %(chains)d; ++i) sum[i] = (float)i;
  for (int n = 0; n < %(iterations)d; ++n)
    for (int i = 0; i < %(chains)d; ++i) sum[i] = sum[i] * x + x;
  float total = 0.0f;
  for (int i = 0; i < %(chains)d; ++i) total += sum[i];
  dst[get_global_id(0)] = total;
}
"""
MATRIX_KERNEL = """
__kernel void multiply_matrices(__global float *dst) {
  const uint x = 0x3c003c00u + (uint)get_local_id(0);
  float4 sum[%(chains)d];
  for (int i = 0; i < %(chains)d; ++i) sum[i] = (float4)(0.0f);
  for (int n = 0; n < %(iterations)d; ++n)
    for (int i = 0; i < %(chains)d; ++i)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%%0, %%1, %%2, %%3}, {%%4, %%4, %%4, %%4}, {%%4, %%4}, {%%0, %%1, %%2, %%3};"
          : "+f"(sum[i].x), "+f"(sum[i].y), "+f"(sum[i].z), "+f"(sum[i].w) : "r"(x));
  float4 total = (float4)(0.0f);
  for (int i = 0; i < %(chains)d; ++i) total += sum[i];
  dst[get_global_id(0)] = total.x + total.y + total.z + total.w;
}
"""  # noqa: E501


@dataclass(frozen=True)
class Ceilings:
    """bytes_per_second: of a copy between buffers that no cache can hold, reads and writes together.

    flops: operations a second by precision; in fp16 those of mma.sync, where the device has matrix units.
    launch_seconds: of one launch among many, from pyopencl.
    """

    bytes_per_second: float
    flops: dict[str, float]
    launch_seconds: float

    def attainable(self, work: Iterable[tuple[int, int]], precision: str) -> float:
        """The least seconds for kernels with this work, (bytes, multiply-adds) each, one after another.

        It is no bound if data stay in a cache, as for small models at batch 1.
        """
        rate = self.flops[precision]
        return sum(max(size / self.bytes_per_second, 2 * macs / rate) for size, macs in work)


def measure_ceilings(index: int) -> Ceilings:
    """The ceilings of the OpenCL device with this index."""
    device = choose(index)
    gpu = device.type == "gpu"
    session = open_session(device)
    queue = profiling_queue(session)
    sizes = {"chains": CHAINS, "iterations": ITERATIONS}
    program = compile_program(session.context, (KERNELS + (MATRIX_KERNEL if device.matrix_units else "")) % sizes)
    block = (1 << 30) if gpu else (1 << 26)
    source, target = (cl.Buffer(session.context, cl.mem_flags.READ_WRITE, block) for _ in range(2))
    cl.enqueue_fill(queue, source, np.zeros(1, np.float32), block)

    def seconds(kernel: str, items: int, *arguments: cl.Buffer) -> float:
        bound = cl.Kernel(program, kernel)
        bound.set_args(*arguments)
        best = float("inf")
        for _ in range(ROUNDS):
            event = cl.enqueue_nd_range_kernel(queue, bound, (items,), (GROUP,))
            event.wait()
            best = min(best, 1e-9 * (event.profile.end - event.profile.start))
        return best

    items = GROUP * device.compute_units * (16 if gpu else 4)
    operations = 2 * items * CHAINS * ITERATIONS
    fp32 = fp16 = operations / seconds("multiply_add", items, target)
    if device.matrix_units:
        fp16 = MMA_FLOPS * items // 32 * CHAINS * ITERATIONS / seconds("multiply_matrices", items, target)
    copied = 2 * block / seconds("copy", block // 16, source, target)

    empty = cl.Kernel(program, "nothing")
    empty.set_args(target)

    def launch() -> None:
        for _ in range(LAUNCHES):
            cl.enqueue_nd_range_kernel(session.queue, empty, (GROUP,), (GROUP,))
        session.queue.finish()

    return Ceilings(copied, {"fp32": fp32, "fp16": fp16}, median(timed(launch)(ROUNDS)) / LAUNCHES)
