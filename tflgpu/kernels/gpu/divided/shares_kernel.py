"""The kernel of shares of sums: that of the sums, which computes all shares one after the other."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.kernels.architecture import sharing_lowering
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.shares import Shares


@GPU.lowering("shares")
def shares_kernel(request: Request) -> Kernel:
    """Return the kernel of a node that computes shares of a sum."""
    shares = request.attributes(Shares)
    storage = {**request.storage, shares.node.output: request.output.share(shares.count)}
    whole = replace(request, node=shares.node, storage=storage, shares=shares.count)
    lowering = sharing_lowering(whole)
    assert lowering is not None
    kernel = lowering.lower(whole)
    return replace(kernel, tiles=kernel.tiles * shares.count, shares=shares.count)
