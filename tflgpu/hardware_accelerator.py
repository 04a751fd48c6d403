"""LiteRT's ``ai_edge_litert.hardware_accelerator``: the processors that a compiled model may use."""

from __future__ import annotations

from enum import IntFlag

__all__ = ["HardwareAccelerator"]


class HardwareAccelerator(IntFlag):
    """The processors that a :class:`tflgpu.compiled_model.CompiledModel` may use, by LiteRT's names and numbers.

    Attributes:
        CPU: Alone, the best OpenCL device that is a CPU. Beside others, LiteRT's kernels may run what the device
            cannot take.
        GPU: Alone, the best OpenCL device that is a GPU, and all operators have to run there. With ``CPU``, the best
            device, as ``tflgpu.Options(device="auto")``.
        NPU: There are no drivers for these: alone it is refused, beside others it has no effect.
    """

    CPU = 1
    GPU = 2
    NPU = 4
