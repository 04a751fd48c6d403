"""How nodes are computed: lowerings to kernels by architecture, cost model, packing and tiling."""

from __future__ import annotations

from tflgpu.kernels import cpu, gpu, movement, nvidia, portable

__all__ = ["cpu", "gpu", "movement", "nvidia", "portable"]
