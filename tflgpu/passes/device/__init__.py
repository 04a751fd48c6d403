"""Passes for a device: they know how it stores tensors, and what its kernels cost."""

from __future__ import annotations

from tflgpu.passes.device.device_passes import DEVICE_PASSES, DevicePass, planned, planning_steps

__all__ = ["DEVICE_PASSES", "DevicePass", "planned", "planning_steps"]
