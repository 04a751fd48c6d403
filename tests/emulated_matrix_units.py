"""Kernels for matrix units on a device that has none, but sub-groups of 32 that exchange values: Intel's CPU runtime.

The two functions in NVIDIA's assembly are replaced; what calls them is the text that a GPU gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from tflgpu.build import build
from tflgpu.codegen import prelude, render
from tflgpu.link import link
from tflgpu.plan import Plan
from tflgpu.runtime.devices import choose
from tflgpu.runtime.executor import LaunchExecutor
from tflgpu.runtime.session import open_session
from tflgpu.target import Target

DEVICE = "Intel(R) OpenCL"
# As for an H200, but for portable access to storage.
TARGET = Target(family="gpu", compute_units=132, storage="half", executor="persistent", matrix_units=True)

# By the fragment layouts of the PTX ISA: the element of row m and inner index n is in lane 4 (m % 8) + n % 8 / 2, that of
# inner index n and column c in lane 4c + n % 8 / 2; lane 4g + t has the sums of rows g, g + 8 and columns 2t, 2t + 1.
FUNCTIONS = """
uint2 halves_of_floats(float4 x) {
  uint2 halves;
  vstore_half4(within_half_float4(x), 0, (__private half *)&halves);
  return halves;
}
float shuffled_half(uint pair, int odd, uint lane) {
  const ushort bits = intel_sub_group_shuffle(pair, lane) >> 16 * odd;
  return vload_half(0, (__private const half *)&bits);
}
float4 mma_16x8x8(float4 sums, uint2 a, uint b) {
  const uint g = get_sub_group_local_id() / 4, t = get_sub_group_local_id() % 4;
  for (int n = 0; n < 8; ++n) {
    const float low = shuffled_half(a.x, n % 2, 4 * g + n / 2), high = shuffled_half(a.y, n % 2, 4 * g + n / 2);
    const float even = shuffled_half(b, n % 2, 8 * t + n / 2), odd = shuffled_half(b, n % 2, 8 * t + 4 + n / 2);
    sums += (float4)(low * even, low * odd, high * even, high * odd);
  }
  return sums;
}
float4 mma_16x8x16(float4 sums, uint4 a, uint2 b) {
  return mma_16x8x8(mma_16x8x8(sums, a.lo, b.x), a.hi, b.y);
}
"""


def run(plan: Plan, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs of a plan for :data:`TARGET`."""
    source = render(plan)
    begin = prelude(ptx=False, matrix_units=False) + FUNCTIONS
    text = replace(source, prelude=begin).text
    text = text.replace("__kernel ", "__kernel __attribute__((intel_reqd_sub_group_size(32))) ")
    session = open_session(choose(DEVICE))
    return LaunchExecutor(link(plan, source.names), build(text, session)[0], session).run(inputs)
