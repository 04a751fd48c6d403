"""Devices that plans are made for where they are not."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.kernels.mma.m16n8k16 import M16N8K16
from tflgpu.target import Target

# An NVIDIA H200, with tensor cores: all kernels in one launch, or a launch for each.
H200 = Target(
    family="gpu", compute_units=132, storage="half", executor="persistent", ptx=True, matrix_unit=M16N8K16.name
)
H200_LAUNCHES = replace(H200, executor="launch")

# Devices without tensor cores, a launch for each kernel.
CPU = Target(family="cpu", compute_units=2, storage="float")
GPU = Target(family="gpu", compute_units=4, storage="float")


def waiting(target: Target, cycles: float) -> Target:
    """The same with that many cycles between two kernels: with very many, all is fused that one kernel can compute."""
    costs = replace(target.cost_model, launch_latency=cycles, interval_latency=cycles)
    return replace(target, cost_model=costs)
