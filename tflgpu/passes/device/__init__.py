"""Passes for a device: they know how it stores tensors, and what its kernels cost."""

from __future__ import annotations

from tflgpu.passes.device.device_passes import DevicePass, device_passes, planned, planning_steps

__all__ = ["DevicePass", "device_passes", "planned", "planning_steps"]
