"""Passes for a device: they know how it stores tensors, and what its kernels cost."""

from __future__ import annotations

from tflgpu.passes.device.device_passes import DevicePass, passes_for, planned, planning_steps

__all__ = ["DevicePass", "passes_for", "planned", "planning_steps"]
