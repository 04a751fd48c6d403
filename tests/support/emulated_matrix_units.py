"""Kernels for matrix units on a device that has none, but sub-groups of 32 that exchange values: Intel's CPU runtime.

The functions in NVIDIA's assembly are replaced; what calls them is the text that a GPU gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tests.ops.case import Case
from tests.quick import RUNTIMES
from tflgpu.codegen.environment import environment
from tflgpu.codegen.link import link
from tflgpu.codegen.render import prelude, render
from tflgpu.codegen.whole_kernels import render_persistent
from tflgpu.kernels.mma.m16n8k16 import M16N8K16
from tflgpu.plan import Plan
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.executors.persistent_executor import PersistentExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import build_options, whole_text
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.target import Target

DEVICE = RUNTIMES[0]
Storage = Literal["half", "float"]
ERRORS: dict[Storage, float] = {"half": 2e-3, "float": 1e-6}  # of the largest number of a result

Run = Callable[[Plan, Sequence[NDArray[Any]]], list[NDArray[Any]]]

# The target of an H200, except for portable access to storage.
TARGET = Target(family="gpu", compute_units=132, storage="half", executor="persistent", matrix_unit=M16N8K16.name)

# Without the functions in assembly, in place of which come those below.
PORTABLE = replace(TARGET, matrix_unit=None)

# By the fragment layouts of the PTX ISA: row m and inner index n are in lane 4 (m % 8) + n % 8 / 2, register
# m / 8 + 2 (n / 8); inner index n and column c in lane 4c + n % 8 / 2, register n / 8; lane 4g + t has the sums of rows
# g and g + 8 and columns 2t and 2t + 1.
FUNCTIONS = """
uint opaque(uint x) { return x; }
bool is_odd(__global const void *vec4s) { return (size_t)vec4s == 1; }
uint halves_of_two(uint x, uint y, bool high) { return high ? x >> 16 | y & 0xffff0000u : x & 0xffffu | y << 16; }
uint2 halves_of_floats(float4 x) {
  uint2 halves;
  vstore_half4(within_half_float4(x), 0, (__private half *)&halves);
  return halves;
}
#define bounded_halves_of_floats(x) halves_of_floats(x)
float4 floats_of_halves(uint2 x) { return vload_half4(0, (__private const half *)&x); }
uint2 product_of_halves(uint2 x, uint2 y) { return halves_of_floats(floats_of_halves(x) * floats_of_halves(y)); }
uint2 whole_product_of_halves(uint2 x, uint2 y, int low, int high) {
  return halves_of_floats(clamp(rint(floats_of_halves(x) * floats_of_halves(y)), (float)low, (float)high));
}
uint4 shuffled_uint4(uint4 x, uint mask) {
  return (uint4)(intel_sub_group_shuffle_xor(x.x, mask), intel_sub_group_shuffle_xor(x.y, mask),
                 intel_sub_group_shuffle_xor(x.z, mask), intel_sub_group_shuffle_xor(x.w, mask));
}
float shuffled_float(float x, uint mask) { return intel_sub_group_shuffle_xor(x, mask); }
ulong row_of_lane(ulong row, uint lane) { return intel_sub_group_shuffle(row, lane); }
uint4 load_matrices(__local const void *row) {
  const uint g = get_sub_group_local_id() / 4, t = get_sub_group_local_id() % 4;
  uint x[4];
  for (uint m = 0; m < 4; ++m) x[m] = ((__local const uint *)row_of_lane((ulong)row, 8 * m + g))[t];
  return (uint4)(x[0], x[1], x[2], x[3]);
}
uint4 load_transposed_matrices(__local const void *row) {
  const uint g = get_sub_group_local_id() / 4, t = get_sub_group_local_id() % 4;
  uint x[4];
  for (uint m = 0; m < 4; ++m) {
    __local const ushort *even = (__local const ushort *)row_of_lane((ulong)row, 8 * m + 2 * t);
    __local const ushort *odd = (__local const ushort *)row_of_lane((ulong)row, 8 * m + 2 * t + 1);
    x[m] = even[g] | (uint)odd[g] << 16;
  }
  return (uint4)(x[0], x[1], x[2], x[3]);
}
void meet_in_warp(void) { sub_group_barrier(CLK_LOCAL_MEM_FENCE); }
float2 shuffled_halves(uint pair, uint lane) {
  const uint halves = intel_sub_group_shuffle(pair, lane);
  return vload_half2(0, (__private const half *)&halves);
}
__attribute__((noinline)) float4 mma_16x8x16(float4 sums, uint4 a, uint2 b) {
  const uint g = get_sub_group_local_id() / 4, t = get_sub_group_local_id() % 4;
  for (uint n = 0; n < 4; ++n) {
    const float2 low = shuffled_halves(a.s0, 4 * g + n), high = shuffled_halves(a.s1, 4 * g + n);
    const float2 low8 = shuffled_halves(a.s2, 4 * g + n), high8 = shuffled_halves(a.s3, 4 * g + n);
    const float2 even = shuffled_halves(b.x, 8 * t + n), odd = shuffled_halves(b.x, 8 * t + 4 + n);
    const float2 even8 = shuffled_halves(b.y, 8 * t + n), odd8 = shuffled_halves(b.y, 8 * t + 4 + n);
    sums += (float4)(dot(low, even), dot(low, odd), dot(high, even), dot(high, odd));
    sums += (float4)(dot(low8, even8), dot(low8, odd8), dot(high8, even8), dot(high8, odd8));
  }
  return sums;
}
__attribute__((noinline)) float4 mma_halves_16x8x8(float4 sums, uint2 a, uint b) {
  return mma_16x8x16(sums, (uint4)(a, 0, 0), (uint2)(b, 0));
}
"""

# Row m and inner index n are in lane 4 (m % 8) + n % 4, register m / 8 + 2 (n / 4); inner index n and column c in lane
# 4c + n % 4, register n / 4. Bits behind the first 11 are ignored.
FLOAT_FUNCTIONS = """
float shuffled_tf32(float x, uint lane) { return as_float(intel_sub_group_shuffle(as_uint(x) & 0xffffe000u, lane)); }
__attribute__((noinline)) float4 mma_16x8x8(float4 sums, float4 a, float2 b) {
  const uint g = get_sub_group_local_id() / 4, t = get_sub_group_local_id() % 4;
  for (uint n = 0; n < 4; ++n) {
    const float2 rows = (float2)(shuffled_tf32(a.x, 4 * g + n), shuffled_tf32(a.y, 4 * g + n));
    const float2 rows4 = (float2)(shuffled_tf32(a.z, 4 * g + n), shuffled_tf32(a.w, 4 * g + n));
    const float2 columns = (float2)(shuffled_tf32(b.x, 8 * t + n), shuffled_tf32(b.x, 8 * t + 4 + n));
    const float2 columns4 = (float2)(shuffled_tf32(b.y, 8 * t + n), shuffled_tf32(b.y, 8 * t + 4 + n));
    sums += rows.xxyy * columns.xyxy + rows4.xxyy * columns4.xyxy;
  }
  return sums;
}
"""

# Copies to local memory are made when a work-item waits for them, and no sooner; or at once, where `LATE` is false. One
# of 16 bytes that are not aligned is never made.
COPIES = """
typedef struct { __local uint2 *dst; __global const uint2 *src; int size; bool present; int batch; } copy;
typedef struct { copy pending[128]; int count, batches; } copies;
void make(copy c) {
  for (int q = 0; q < c.size; ++q) c.dst[q] = c.present ? c.src[q] : (uint2)(0);
}
__attribute__((noinline))
void begin_copy(copies *all, __local void *dst, __global const void *src, bool present, int size) {
  const copy c = {dst, src, size, present, all->batches};
  if (((size_t)dst | (size_t)src) % (8 * size)) return;
  if (LATE) all->pending[all->count++] = c;
  else make(c);
}
__attribute__((noinline))
void wait_for(copies *all, int batches_left) {
  int left = 0;
  for (int i = 0; i < all->count; ++i) {
    if (all->pending[i].batch < all->batches - batches_left) make(all->pending[i]);
    else all->pending[left++] = all->pending[i];
  }
  all->count = left;
}
#define copy_uint2(dst, src, present) begin_copy(&own_copies, dst, src, present, 1)
#define copy_uint4(dst, src, present) begin_copy(&own_copies, dst, src, present, 2)
#define end_copies() ++own_copies.batches
#define wait_for_copies(n) wait_for(&own_copies, n)
"""
# In a persistent kernel, where no function is a place for them, copies are made at once.
COPIES_AT_ONCE = """
void copy_now(__local uint2 *dst, __global const uint2 *src, bool present, int size) {
  if (((size_t)dst | (size_t)src) % (8 * size)) return;
  for (int q = 0; q < size; ++q) dst[q] = present ? src[q] : (uint2)(0);
}
#define copy_uint2(dst, src, present) copy_now(dst, src, present, 1)
#define copy_uint4(dst, src, present) copy_now((__local uint2 *)(dst), (__global const uint2 *)(src), present, 2)
#define end_copies()
#define wait_for_copies(n)
"""
TILE_BEGIN = "int tile, __local float4 *workspace) {"


def run(plan: Plan, inputs: Sequence[NDArray[Any]], *, late: bool = True) -> list[NDArray[Any]]:
    """The outputs of a plan for :data:`TARGET`. late: when copies to local memory are made.

    The program is not optimized, which takes a twentieth of the time: unrolled products are long functions.
    """
    source = render(plan)
    session = _session()
    program = compile_unoptimized(portable(source.text, plan.target, late=late), session)
    return LaunchExecutor(link(plan, source.names), program, session).run(inputs)


def run_persistent(plan: Plan, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The same from one kernel, whose only work-group computes all tiles.

    It is optimized: otherwise Intel's compiler has work-items meet between two tiles, and a barrier that is missing at
    the end of one is not found.
    """
    source = render(plan)
    executable = link(plan, source.names)
    text, persistent = render_persistent(source, executable, ptx=False)
    session = _session()
    program = build(portable(text, plan.target), session)[0]
    return PersistentExecutor(replace(executable, persistent=persistent), program, session).run(inputs)


def check(plan: Plan, case: Case, error: float | None = None, *, run: Run = run) -> None:
    """That a plan gives the right outputs.

    error: of the largest element of an output, by default what the plan's storage has room for.
    """
    for got, expected in zip(run(plan, case.inputs), case.expected, strict=True):
        check_largest(got, expected, error or plan.target.storage)


def check_largest(got: NDArray[Any], expected: NDArray[Any], error: Storage | float) -> None:
    error = ERRORS[error] if isinstance(error, str) else error
    np.testing.assert_allclose(got, expected, rtol=0, atol=error * np.nanmax(np.abs(expected)))


def _session() -> Session:
    """Without the runtime the test is skipped, or fails."""
    from tests.conftest import usable  # which sets variables of the environment

    return open_session(choose(usable(DEVICE)))


def compile_unoptimized(text: str, session: Session) -> cl.Program:
    device = session.device.handle
    program = cl._cl._Program(session.context, whole_text(device, text))
    program._build(" ".join([*build_options(device, text), "-cl-opt-disable"]).encode())
    return program


def portable(text: str, target: Target, *, late: bool | None = None) -> str:
    """The program of a plan for :data:`TARGET`, or one like it, with the functions in assembly replaced.

    late: when copies to local memory are made; None for a persistent kernel.
    """
    products = environment().get_template("ptx/float_products.cl.j2").render()
    begin = prelude(PORTABLE) + FUNCTIONS + FLOAT_FUNCTIONS + products
    begin += COPIES_AT_ONCE if late is None else f"\n#define LATE {int(late)}" + COPIES
    text = text.replace(prelude(target), begin)
    if late is not None:
        text = text.replace(TILE_BEGIN, f"{TILE_BEGIN}\ncopies own_copies; own_copies.count = own_copies.batches = 0;")
    return text.replace("__kernel ", "__kernel __attribute__((intel_reqd_sub_group_size(32))) ")
