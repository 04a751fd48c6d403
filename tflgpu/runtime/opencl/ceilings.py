"""The ceilings of a roofline model: what a device can do at most, measured in OpenCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from tflgpu.runtime.opencl.clock import measure_launches
from tflgpu.runtime.opencl.devices import Device
from tflgpu.runtime.opencl.program import compile_program, make_kernel
from tflgpu.runtime.opencl.session import DeviceFailures, Session, profiling_queue

ROUNDS = 20
LONG = 20e-3  # seconds of a launch that is measured well; simulators take minutes for what takes devices as long
GROUPS = {True: 256, False: 1}  # work-items, on GPUs and elsewhere, where kernels are of one that computes with vectors
CHAINS = 8  # independent sums in each work-item or warp, to hide their latency
ITERATIONS = tuple(1 << power for power in range(4, 15))  # of each sum
COPIES = tuple(1 << power for power in range(20, 31, 2))  # bytes; of a GPU the largest, which no cache can hold
LARGEST_COPY_ON_CPU = 1 << 26
MMA_FLOPS = 2 * 16 * 8 * 16

# Compilers for CPUs keep vectors in registers, but not every one makes vectors of scalars.
COPY_KERNEL = """
__kernel void copy(__global const float4 *src, __global float4 *dst) { dst[get_global_id(0)] = src[get_global_id(0)]; }
"""
MULTIPLY_ADD_KERNEL = """
__kernel __attribute__((reqd_work_group_size(%(group)d, 1, 1)))
void multiply_add_%(element)s(__global %(vector)s *dst, int iterations) {
  const %(vector)s x = (%(element)s)(0.999f + 1e-6f * (float)get_local_id(0));
  %(vector)s sum[%(chains)d];
  for (int i = 0; i < %(chains)d; ++i) sum[i] = (%(element)s)i;
  for (int n = 0; n < iterations; ++n)
    for (int i = 0; i < %(chains)d; ++i) sum[i] = sum[i] * x + x;
  %(vector)s total = (%(element)s)0;
  for (int i = 0; i < %(chains)d; ++i) total += sum[i];
  dst[get_global_id(0)] = total;
}
"""
ENABLE_HALF = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
MATRIX_KERNEL = """
__kernel void multiply_matrices(__global float *dst, int iterations) {
  const uint x = 0x3c003c00u + (uint)get_local_id(0);
  float4 sum[%(chains)d];
  for (int i = 0; i < %(chains)d; ++i) sum[i] = (float4)(0.0f);
  for (int n = 0; n < iterations; ++n)
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

    flops: operations a second by precision; in fp16 those of mma.sync, where the device has matrix units. Without
        fp16_fast where it does not compute in half.
    """

    bytes_per_second: float
    flops: dict[str, float]


def measure_ceilings(session: Session) -> Ceilings:
    """The best of several rounds, in about a second. Raises DeviceError if the device fails."""
    with DeviceFailures(session.device, "measuring its ceilings"):
        return _measure(session)


def _measure(session: Session) -> Ceilings:
    device = session.device
    gpu = device.type == "gpu"
    queue = profiling_queue(session)
    program = compile_program(session.context, _source(device))
    largest = min(device.handle.max_mem_alloc_size, device.memory // 4, COPIES[-1] if gpu else LARGEST_COPY_ON_CPU)
    copies = [size for size in COPIES if size <= largest] or COPIES[:1]
    source, target = (cl.Buffer(session.context, cl.mem_flags.READ_WRITE, copies[-1]) for _ in range(2))
    cl.enqueue_fill_buffer(queue, source, np.zeros(1, np.float32), 0, copies[-1])

    def seconds(name: str, items: int, group: int, *arguments: cl.Buffer | np.int32) -> float:
        kernel = make_kernel(program, name)
        kernel.set_args(*arguments)
        ((begin, end),) = measure_launches(queue, [(kernel, (items,), (group,))])
        return 1e-9 * float(end - begin)

    group = GROUPS[gpu]
    items = group * device.compute_units * 16
    sums = items * CHAINS

    def rate(name: str) -> float:
        return _best_rate(lambda n: seconds(name, items, group, target, np.int32(n)), ITERATIONS)

    lanes = 1 if gpu else 16
    flops = {"fp32": rate("multiply_add_float") * 2 * sums * lanes}
    flops["fp16"] = rate("multiply_matrices") * MMA_FLOPS * sums // 32 if device.matrix_units else flops["fp32"]
    if device.limits.half_arithmetic:
        flops["fp16_fast"] = rate("multiply_add_half") * 2 * sums * lanes
    copied = 2 * _best_rate(lambda size: seconds("copy", size // 16, 256, source, target), copies)
    return Ceilings(copied, flops)


def _source(device: Device) -> str:
    """The kernels that a device can run."""
    gpu = device.type == "gpu"

    def multiply_add(element: str) -> str:
        vector = element if gpu else f"{element}16"
        return MULTIPLY_ADD_KERNEL % {"chains": CHAINS, "group": GROUPS[gpu], "element": element, "vector": vector}

    in_half = ENABLE_HALF + multiply_add("half") if device.limits.half_arithmetic else ""
    matrices = MATRIX_KERNEL % {"chains": CHAINS} if device.matrix_units else ""
    return COPY_KERNEL + multiply_add("float") + in_half + matrices


def _best_rate(measure: Callable[[int], float], sizes: Sequence[int]) -> float:
    """The best size a second, for the last of the growing sizes, or the first that takes long."""
    for size in sizes:
        if (seconds := measure(size)) > LONG:
            break
    rounds = [measure(size) for _ in range(ROUNDS)] if seconds < 10 * LONG else []
    return size / min(seconds, *rounds) if rounds else size / seconds
