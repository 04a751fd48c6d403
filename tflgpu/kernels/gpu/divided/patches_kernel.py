"""The kernel that copies what windows see."""

from __future__ import annotations

from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.divided.patches_as_channels import Patches
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.movement.rearrange import copy_kernel
from tflgpu.kernels.request import Request


@GPU.lowering("patches")
def patches_kernel(request: Request) -> Kernel:
    patches = request.node.attributes
    assert isinstance(patches, Patches)
    return copy_kernel(request, "gpu/patches", {"window": patches.window, "dirty": True})
